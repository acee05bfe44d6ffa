// SPDX-License-Identifier: Apache-2.0

/*
 * pagedstack: allocates on a stack whose outer pages are not present, as those
 * of a thread that has been swapped out. The stack is shared memory, so that its
 * pages can be dropped and come back with what they held; before each allocation
 * all but the innermost are dropped, which the target checks. The protocol is
 * model.h's; 50 allocations of the site, 30 frames of 8 KiB deep.
 */
#define SITES X(on_dropped_stack, "malloc", 1009)

#define MODEL_DEFINE
#define _GNU_SOURCE

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "model.h"

#define STACK ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define DEPTH 30

static char *stack;
static int pagemap;

static bool present(const char *p)
{
	uint64_t entry = 0;

	CHECK(pread(pagemap, &entry, sizeof(entry), (off_t)((uintptr_t)p / PAGE * sizeof(entry))) ==
	      sizeof(entry));
	return entry >> 63;
}

SITE void on_dropped_stack(void)
{
	/* Two pages above here are in use by this call; all above them go. */
	char *from = (char *)(((uintptr_t)__builtin_frame_address(0) + 3 * PAGE) & ~(PAGE - 1));
	void *p;

	CHECK(madvise(from, (size_t)(stack + STACK - from), MADV_DONTNEED) == 0);
	/* The uppermost hold the thread's own data and come back at once. */
	CHECK(!present(from) && !present(from + 16 * PAGE));
	p = malloc(SIZE(on_dropped_stack));
	KEEP(p);
	allocated(ID_on_dropped_stack, p, SIZE(on_dropped_stack));
}

SITE void descend(int n)
{
	volatile char room[2 * PAGE];

	room[0] = (char)n;
	if (n == 0)
		on_dropped_stack();
	else
		descend(n - 1);
	room[1] = room[0];
}

static void *run(void *unused)
{
	int i;

	for (i = 0; i < 50; i++)
		descend(DEPTH);
	return unused;
}

int main(void)
{
	int fd = memfd_create("stack", 0);
	pthread_attr_t attr;
	pthread_t thread;

	pagemap = open("/proc/self/pagemap", O_RDONLY);
	CHECK(fd >= 0 && pagemap >= 0 && ftruncate(fd, STACK) == 0);
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(stack != MAP_FAILED);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstack(&attr, stack, STACK) == 0);
	attach();
	CHECK(pthread_create(&thread, &attr, run, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	report();
	return 0;
}
