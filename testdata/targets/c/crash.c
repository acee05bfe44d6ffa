// SPDX-License-Identifier: Apache-2.0

/*
 * crash: dies of SIGSEGV. After READY and a line it makes 10 allocations of 1009
 * bytes ("before_crash", kept), says ALLOCATED, waits for a line and writes to
 * address 0.
 */
#include <sys/resource.h>

#include "talk.h"

SITE void before_crash(void)
{
	void *p = malloc(1009);

	CHECK(p);
	KEEP(p);
}

int main(void)
{
	struct rlimit no_core = { 0, 0 };
	volatile int *nowhere = NULL;
	char line[64];
	int i;

	setrlimit(RLIMIT_CORE, &no_core);
	ready();
	for (i = 0; i < 10; i++)
		before_crash();
	say("ALLOCATED\n");
	CHECK(read_line(line, sizeof(line)));
	KEEP(nowhere);
	*nowhere = 1;
	return 0;
}
