// SPDX-License-Identifier: Apache-2.0

/*
 * allfuncs: every host allocation function, each from sites of its own with
 * sizes of its own, from several threads and from signal handlers.
 *
 *   allfuncs start [ROUNDS]   waits before it allocates anything; threads are
 *                             also started, and exit, after READY
 *   allfuncs mid [ROUNDS]     allocates a known set before READY and frees a
 *                             part of it after: the unmatched frees are exact
 *
 * Every round of every thread keeps some allocations and frees others; calls
 * that fail are made too, and all forms of realloc, mremap and munmap. SIGUSR1
 * is raised between calls and allocates in its handler; SIGALRM comes at random
 * points, also inside the allocator, where its handler allocates nothing since
 * no allocator allows that (see bumpalloc.c for one that does). A forked child
 * frees what its parent allocated, which concerns the parent's memory nothing.
 *
 * The function named for a site is the one it calls. In glibc aligned_alloc and
 * memalign are one address, as are mmap and mmap64. A handler's stack goes on in
 * the site that it interrupted: the site is the innermost in a stack. Sources:
 * allfuncs.c, allfuncs_heap.c, allfuncs_maps.c. The protocol is model.h's.
 */
#define MODEL_DEFINE
#include "allfuncs.h"

#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>

#define THREADS 4
#define EARLY 64 /* allocations of a thread before READY in mode mid */

static bool mid;
static int rounds = 20;
static pthread_barrier_t barrier;

__thread volatile sig_atomic_t inside;

HEAP(handler_raised, malloc(n))
HEAP(handler_timer, calloc(n, 1))
HEAP(thread_late, malloc(n))
HEAP(parent_kept, malloc(n))
HEAP(child_malloc, malloc(n))

static __thread struct ref raised; /* by the last handler of SIGUSR1 */
static __thread int timed;	   /* runs of the timer's handler that allocated */

static void on_usr1(int sig)
{
	(void)sig;
	if (raised.p)
		drop(&raised);
	raised = handler_raised();
}

/* Also delivered inside a probe, and inside the allocator, which it then leaves
   alone. */
static void on_alarm(int sig)
{
	int saved = errno;
	struct ref r;

	(void)sig;
	if (!inside) {
		r = handler_timer();
		if (timed++ % 16)
			drop(&r);
	}
	errno = saved;
}

/* allow_timer lets SIGALRM reach this thread, or no longer. */
static void allow_timer(bool on)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	CHECK(pthread_sigmask(on ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL) == 0);
}

static void work(void)
{
	int i;

	allow_timer(true);
	for (i = 0; i < rounds; i++) {
		heap();
		raise(SIGUSR1);
		reallocs();
		failures();
		maps();
		raise(SIGUSR1);
		reuse();
	}
	allow_timer(false);
}

/* before allocates what mode mid has before READY. */
static void before(struct ref *early)
{
	struct ref (*const sites[])(void) = {
		malloc_small, malloc_large,	 calloc_small,
		realloc_null, posix_memalign_64, memalign_256,
	};
	int i;

	for (i = 0; i < EARLY; i++)
		early[i] = sites[i % (sizeof(sites) / sizeof(sites[0]))]();
}

/* after frees half of that, and resizes some: a free and an allocation each. */
static void after(struct ref *early)
{
	struct ref r;
	int i;

	for (i = 0; i < EARLY / 2; i++)
		drop(&early[i]);
	for (; i < EARLY / 2 + 6; i++) {
		r = realloc_grow(&early[i]); /* kept */
		CHECK(r.p);
	}
	for (; i < EARLY / 2 + 9; i++)
		realloc_zero(&early[i]);
	CHECK(!realloc_failing(&early[i]).p); /* frees nothing */
}

static void *worker(void *arg)
{
	struct ref early[EARLY];

	(void)arg;
	if (mid)
		before(early);
	pthread_barrier_wait(&barrier); /* READY comes next */
	pthread_barrier_wait(&barrier);
	if (mid)
		after(early);
	work();
	pthread_barrier_wait(&barrier); /* done */
	if (mid)
		pause(); /* an exit would make more unmatched frees */
	return NULL;
}

static void *late(void *arg)
{
	struct ref r = thread_late();

	(void)arg;
	drop(&r);
	thread_late(); /* kept */
	return NULL;
}

static void forks(void)
{
	struct ref kept[8];
	int i, status;
	pid_t pid;

	for (i = 0; i < 8; i++)
		kept[i] = parent_kept();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		for (i = 0; i < 8; i++) {
			drop(&kept[i]);
			child_malloc();
		}
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
	struct itimerval timer = { { 0, 700 }, { 0, 700 } }, off = { { 0, 0 }, { 0, 0 } };
	pthread_t threads[THREADS], late_threads[THREADS];
	int i;

	mid = argc > 1 && strcmp(argv[1], "mid") == 0;
	if (argc > 2)
		rounds = atoi(argv[2]);
	find_pvalloc();
	signal(SIGUSR1, on_usr1);
	signal(SIGALRM, on_alarm);
	allow_timer(false);
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, worker, NULL) == 0);
	pthread_barrier_wait(&barrier);
	attach();
	setitimer(ITIMER_REAL, &timer, NULL);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	setitimer(ITIMER_REAL, &off, NULL);
	if (!mid) {
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (i = 0; i < THREADS; i++)
			CHECK(pthread_create(&late_threads[i], NULL, late, NULL) == 0);
		for (i = 0; i < THREADS; i++)
			pthread_join(late_threads[i], NULL);
		totals.thread_exits = 2 * THREADS;
	}
	forks();
	report();
	return 0;
}
