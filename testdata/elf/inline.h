// SPDX-License-Identifier: Apache-2.0

// Inline functions of another file than their caller.

#pragma once

#define TWICE(x) ((x) + (x))

static inline int square(int x) { return x * x; }

static inline int cube(int x)
{
	int y = square(x);
	if (y > 46340)
		return 0;
	return y * x;
}
