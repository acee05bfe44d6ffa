// SPDX-License-Identifier: Apache-2.0

/*
 * leaky: a CPython extension whose memory Python does not know of.
 *
 *   leak(n)              mallocs and fills n bytes and forgets them
 *   leak_without_gil(n)  the same with the GIL released
 *   cached(n)            the same, but keeps only the last 64 and frees the others
 *   call(f, n)           calls f(), then leaks n bytes
 *
 * All return None. Built as wheels are, without symbols, frame pointers or debug
 * information; what remains is .eh_frame and the name PyInit_leaky:
 *
 *   gcc -O2 -fPIC -shared -fomit-frame-pointer -s -I INCLUDE leaky.c -o leaky.so
 *
 * The stable ABI makes one build do for every CPython from 3.9 on.
 */
#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#define CACHED 64

/* Two functions deep, so that there is something to unwind. */
__attribute__((noinline)) static void *take(size_t n)
{
	void *p = malloc(n);

	if (p)
		memset(p, 0x55, n);
	return p;
}

static void *parse_and_take(PyObject *arg)
{
	size_t n = PyLong_AsSize_t(arg);
	void *p;

	if (n == (size_t)-1 && PyErr_Occurred())
		return NULL;
	p = take(n);
	if (!p)
		PyErr_NoMemory();
	return p;
}

static PyObject *leak(PyObject *module, PyObject *arg)
{
	(void)module;
	if (!parse_and_take(arg))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *leak_without_gil(PyObject *module, PyObject *arg)
{
	size_t n = PyLong_AsSize_t(arg);
	void *p;

	(void)module;
	if (n == (size_t)-1 && PyErr_Occurred())
		return NULL;
	Py_BEGIN_ALLOW_THREADS p = take(n);
	Py_END_ALLOW_THREADS if (!p) return PyErr_NoMemory();
	Py_RETURN_NONE;
}

static PyObject *cached(PyObject *module, PyObject *arg)
{
	static void *cache[CACHED];
	static unsigned int next;
	void *p = parse_and_take(arg);

	(void)module;
	if (!p)
		return NULL;
	free(cache[next % CACHED]);
	cache[next++ % CACHED] = p;
	Py_RETURN_NONE;
}

static PyObject *call(PyObject *module, PyObject *args)
{
	PyObject *f, *n, *result;

	if (!PyArg_ParseTuple(args, "OO", &f, &n))
		return NULL;
	result = PyObject_CallObject(f, NULL);
	if (!result)
		return NULL;
	Py_DECREF(result);
	return leak(module, n);
}

static PyMethodDef methods[] = {
	{ "leak", leak, METH_O, "leak(n): malloc n bytes and forget them" },
	{ "leak_without_gil", leak_without_gil, METH_O, "leak(n) with the GIL released" },
	{ "cached", cached, METH_O, "cached(n): malloc n bytes, keep the last 64 such" },
	{ "call", call, METH_VARARGS, "call(f, n): call f, then leak(n)" },
	{ NULL, NULL, 0, NULL },
};

static PyModuleDef_Slot slots[] = { { 0, NULL } };

static struct PyModuleDef definition = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "leaky",
	.m_methods = methods,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit_leaky(void)
{
	return PyModuleDef_Init(&definition);
}
