// SPDX-License-Identifier: Apache-2.0

/* A library whose code has no unwind tables. */
int noframes_value(int n)
{
	return n + 1;
}
