// SPDX-License-Identifier: Apache-2.0

/*
 * newfails: C++ allocations that fail for want of address space and are caught.
 * After READY and a line it limits its address space, makes 20 calls that throw
 * and 20 that do not ("kept"), says "CAUGHT n" and DONE.
 */
#include <new>

#include <sys/resource.h>

#include "talk.h"

SITE static bool too_much(size_t n)
{
	try {
		char *p = new char[n];

		KEEP(p);
		delete[] p;
	} catch (std::bad_alloc &) {
		return true;
	}
	return false;
}

SITE static void kept(void)
{
	char *p = new char[1009];

	KEEP(p);
}

int main()
{
	struct rlimit limit = { 4UL << 30, 4UL << 30 };
	int i, caught = 0;

	ready();
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	for (i = 0; i < 20; i++) {
		caught += too_much((size_t)5 << 30);
		kept();
	}
	say("CAUGHT %d\n", caught);
	done();
	return 0;
}
