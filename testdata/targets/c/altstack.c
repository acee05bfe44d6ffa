// SPDX-License-Identifier: Apache-2.0

/*
 * altstack: allocates in a signal handler that runs on a stack of its own, so
 * that the stack's addresses jump where the handler was entered. The site's
 * stack reads on_signal, the kernel's signal frame, raise and outside. Keeps 100
 * allocations of the handler and 50 of outside. The protocol is model.h's.
 */
#define SITES                       \
	X(on_signal, "malloc", 131) \
	X(outside, "malloc", 257)

#define MODEL_DEFINE
#define _GNU_SOURCE
#include "model.h"

#include <signal.h>

SITE void on_signal(int sig)
{
	void *p;

	(void)sig;
	p = malloc(SIZE(on_signal));
	allocated(ID_on_signal, p, SIZE(on_signal));
}

SITE void outside(bool keep)
{
	struct ref r;
	void *p;

	raise(SIGUSR1);
	p = malloc(SIZE(outside));
	r = allocated(ID_outside, p, SIZE(outside));
	if (keep)
		return;
	released(&r);
	free(p);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_size = 1 << 16 };
	int i;

	stack.ss_sp = malloc(stack.ss_size);
	CHECK(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	attach();
	for (i = 0; i < 100; i++)
		outside(i % 2);
	report();
	return 0;
}
