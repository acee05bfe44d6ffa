// SPDX-License-Identifier: Apache-2.0

/*
 * An eval function that compilers cut into parts: code that they know to be rare
 * moves to a .cold part, from where it jumps back. It also ends in tail calls,
 * which must not be taken for parts.
 */

#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

int _PyRuntime[1024];
const unsigned int Py_Version = 0x030c01f0;

__attribute__((cold, noinline)) int rare(int x)
{
	return abs(x) + rand();
}

/* Not exported, so that a stripped file has no name for it. */
static NOINLINE int finish(int x)
{
	return x * rand();
}

NOINLINE int finish_exported(int x)
{
	return x + rand();
}

NOINLINE int _PyEval_EvalFrameDefault(const unsigned char *code, int x)
{
	for (;; code++) {
		switch (*code) {
		case 0:
			if (x < 0)
				x = rare(x) + rare(x + 1) * 3;
			x += 3;
			break;
		case 1:
			x *= rand();
			if (x == 7) {
				x = rare(rare(x));
				if (x & 1)
					x -= rand();
			}
			break;
		case 2:
			return finish(x);
		case 3:
			return finish_exported(x);
		case 4:
			if (x > 100000)
				return rare(x) + 1;
			break;
		default:
			if (rand() == x)
				abort();
			return x;
		}
	}
}

int main(int argc, char **argv)
{
	return _PyEval_EvalFrameDefault((const unsigned char *)argv[0], argc);
}
