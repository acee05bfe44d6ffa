// SPDX-License-Identifier: Apache-2.0

/*
 * tokenizer: the C extension of the demo, with the bug that it is about.
 *
 *   encode(text) -> list of the numbers of the text's words
 *
 * For speed it works in a scratch buffer. For text that is not ASCII it returns
 * early and forgets to free it. Python does not know of that memory.
 */
#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH ((size_t)64 << 10)
#define VOCABULARY 30000

/* Appends the FNV-1a hash of each word, as its number; false if it cannot. */
static int hash_words(PyObject *numbers, const unsigned char *text, size_t n)
{
	uint32_t hash = 2166136261u;
	size_t i;

	for (i = 0; i < n; i++) {
		PyObject *number;
		int failed;

		if (text[i] != ' ') {
			hash = (hash ^ text[i]) * 16777619u;
			continue;
		}
		number = PyLong_FromUnsignedLong(hash % VOCABULARY);
		if (!number)
			return 0;
		failed = PyList_Append(numbers, number);
		Py_DECREF(number);
		if (failed)
			return 0;
		hash = 2166136261u;
	}
	return 1;
}

static int is_ascii(const unsigned char *text, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (text[i] & 0x80)
			return 0;
	return 1;
}

static PyObject *encode(PyObject *module, PyObject *args)
{
	const char *text;
	unsigned char *scratch;
	PyObject *numbers;
	Py_ssize_t n;

	(void)module;
	if (!PyArg_ParseTuple(args, "s#", &text, &n))
		return NULL;
	if ((size_t)n >= SCRATCH) {
		PyErr_SetString(PyExc_ValueError, "text is too long");
		return NULL;
	}
	numbers = PyList_New(0);
	scratch = malloc(SCRATCH);
	if (!numbers || !scratch) {
		free(scratch);
		Py_XDECREF(numbers);
		return PyErr_NoMemory();
	}
	memset(scratch, ' ', SCRATCH);
	memcpy(scratch, text, (size_t)n);
	if (!hash_words(numbers, scratch, (size_t)n + 1)) {
		free(scratch);
		Py_DECREF(numbers);
		return NULL;
	}
	if (!is_ascii(scratch, (size_t)n))
		return numbers; /* the bug: scratch is lost */
	free(scratch);
	return numbers;
}

static PyMethodDef methods[] = {
	{ "encode", encode, METH_VARARGS, "encode(text): the numbers of its words" },
	{ NULL, NULL, 0, NULL },
};

static PyModuleDef_Slot slots[] = { { 0, NULL } };

static struct PyModuleDef definition = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "tokenizer",
	.m_methods = methods,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit_tokenizer(void)
{
	return PyModuleDef_Init(&definition);
}
