// SPDX-License-Identifier: Apache-2.0

/*
 * exec: becomes another program under the same PID. After READY and a line it
 * makes 10 allocations ("first_life", kept), says ALLOCATED, waits for a line and
 * executes itself. The second program says AGAIN and its pid, makes 20
 * allocations ("second_life") after a line, and says DONE.
 */
#include "talk.h"

SITE void first_life(void)
{
	void *p = malloc(1009);

	CHECK(p);
	KEEP(p);
}

SITE void second_life(void)
{
	void *p = malloc(2003);

	CHECK(p);
	KEEP(p);
}

int main(int argc, char **argv)
{
	char line[64];
	int i;

	if (argc > 1) {
		say("AGAIN %d\n", getpid());
		CHECK(read_line(line, sizeof(line)));
		for (i = 0; i < 20; i++)
			second_life();
		done();
		return 0;
	}
	ready();
	for (i = 0; i < 10; i++)
		first_life();
	say("ALLOCATED\n");
	CHECK(read_line(line, sizeof(line)));
	execl("/proc/self/exe", argv[0], "again", (char *)NULL);
	CHECK(!"exec");
	return 1;
}
