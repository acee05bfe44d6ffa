// SPDX-License-Identifier: Apache-2.0

/* sampled: after READY and a line it makes 50,000 allocations of 9 bytes, says
 * DONE and waits for the end of its input. */
#include <stdio.h>
#include <stdlib.h>

static void *volatile last;

__attribute__((noinline)) static void nine_bytes(void)
{
	last = malloc(9);
}

int main(void)
{
	int c, i;

	puts("READY");
	fflush(stdout);
	while ((c = getchar()) != '\n' && c != EOF)
		;
	for (i = 0; i < 50000; i++)
		nine_bytes();
	puts("DONE");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
