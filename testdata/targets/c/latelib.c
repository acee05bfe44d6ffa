// SPDX-License-Identifier: Apache-2.0

/*
 * latelib: the library that dlopen_late loads. 50 sites, late_00 to late_49, of
 * which number i mallocs 1000 + 8 i bytes, three frames deep.
 *
 *   gcc -shared -fPIC latelib.c -o liblatelib.so
 */
#include "talk.h"

SITE static void *inner(size_t n)
{
	void *p = malloc(n);

	KEEP(p);
	return p;
}

SITE static void *middle(size_t n)
{
	void *p = inner(n);

	KEEP(p);
	return p;
}

#define LATE(i)                                            \
	SITE static void *late_##i(void)                   \
	{                                                  \
		void *p = middle(1000 + 8 * (1##i - 100)); \
		KEEP(p);                                   \
		return p;                                  \
	}
/* clang-format off */
#define TEN(t)                                                 \
	LATE(t##0) LATE(t##1) LATE(t##2) LATE(t##3) LATE(t##4) \
	LATE(t##5) LATE(t##6) LATE(t##7) LATE(t##8) LATE(t##9)
#define TEN_NAMES(t)                                                   \
	late_##t##0, late_##t##1, late_##t##2, late_##t##3, late_##t##4, \
	late_##t##5, late_##t##6, late_##t##7, late_##t##8, late_##t##9

TEN(0) TEN(1) TEN(2) TEN(3) TEN(4)

void *(*const late_sites[50])(void) = {
	TEN_NAMES(0), TEN_NAMES(1), TEN_NAMES(2), TEN_NAMES(3), TEN_NAMES(4),
};
/* clang-format on */
