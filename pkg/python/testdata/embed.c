// SPDX-License-Identifier: Apache-2.0

/*
 * A program of another name that holds an interpreter. Runs code that waits: with
 * an argument in a second interpreter, called from code of the first.
 */

#include <Python.h>

static const char wait_code[] =
	"def wait_here():\n"
	"    import os\n"
	"    os.write(1, b'READY\\n')\n"
	"    os.read(0, 1)\n"
	"wait_here()\n";

static PyObject *in_second(PyObject *self, PyObject *args)
{
	PyThreadState *first = PyThreadState_Get();
	PyThreadState *second = Py_NewInterpreter();

	(void)self;
	(void)args;
	if (!second)
		Py_FatalError("no second interpreter");
	PyRun_SimpleString(wait_code);
	Py_EndInterpreter(second);
	PyThreadState_Swap(first);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"in_second", in_second, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT, "second", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

static PyObject *init(void)
{
	return PyModule_Create(&module);
}

int main(int argc, char **argv)
{
	(void)argv;
	PyImport_AppendInittab("second", init);
	Py_Initialize();
	PyRun_SimpleString(argc > 1 ? "import second\nsecond.in_second()\n" : wait_code);
	return 0;
}
