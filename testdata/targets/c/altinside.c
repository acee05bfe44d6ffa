// SPDX-License-Identifier: Apache-2.0

/*
 * altinside: a signal handler on an alternate stack interrupts malloc and calls
 * malloc itself, on a stack that lies above the interrupted one. The kernel loses
 * the interrupted call's return address if the handler's call has its return
 * probed, and the program dies. It must run on bumpalloc, which allows a malloc
 * inside a malloc. The protocol is model.h's; 100 rounds, each of which also
 * allocates from "outside".
 */
#define SITES                         \
	X(interrupted, "malloc", 131) \
	X(in_handler, "malloc", 257)  \
	X(outside, "malloc", 521)

#define MODEL_DEFINE
#define _GNU_SOURCE

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "model.h"

#define STACK ((size_t)256 << 10)

extern void (*bump_inside)(void) __attribute__((weak));

/* In the program's data, below everything that is mapped. */
static char low_stack[256 << 10] __attribute__((aligned(4096)));

SITE void in_handler(void)
{
	void *p = malloc(SIZE(in_handler));

	KEEP(p);
	allocated(ID_in_handler, p, SIZE(in_handler));
}

static void on_signal(int sig)
{
	(void)sig;
	in_handler();
}

static void interrupt(void)
{
	raise(SIGUSR1);
}

SITE void interrupted(void)
{
	void *p;

	bump_inside = interrupt;
	p = malloc(SIZE(interrupted));
	KEEP(p);
	allocated(ID_interrupted, p, SIZE(interrupted));
}

SITE void outside(void)
{
	void *p = malloc(SIZE(outside));

	KEEP(p);
	allocated(ID_outside, p, SIZE(outside));
}

static void *run(void *unused)
{
	stack_t alt = { .ss_size = STACK };
	int i;

	alt.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(alt.ss_sp != MAP_FAILED && (char *)alt.ss_sp > low_stack);
	CHECK(sigaltstack(&alt, NULL) == 0);
	for (i = 0; i < 100; i++) {
		interrupted();
		outside();
	}
	return unused;
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	pthread_attr_t attr;
	pthread_t thread;

	CHECK(&bump_inside);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_attr_init(&attr) == 0);
	CHECK(pthread_attr_setstack(&attr, low_stack, sizeof(low_stack)) == 0);
	attach();
	CHECK(pthread_create(&thread, &attr, run, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	report();
	return 0;
}
