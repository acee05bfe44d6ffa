// SPDX-License-Identifier: Apache-2.0

/*
 * longjmp: signal handlers that run inside malloc. It must run on bumpalloc,
 * which allows that, by LD_PRELOAD or linked.
 *
 * Round by round, inside a malloc or calloc of the site "interrupted":
 *
 *   - the handler allocates ("in_handler", kept) and returns; both count
 *   - the handler leaves by siglongjmp; the interrupted call never returns, so
 *     nobody has its memory and it counts as nothing
 *   - the handler allocates and then leaves by siglongjmp
 *
 * and after each the site "after_jump" allocates from as high a stack, twice,
 * and frees one. The protocol is model.h's; calls that never return are in none
 * of its counts.
 */
#define SITES                                \
	X(interrupted, "malloc", 131)        \
	X(interrupted_calloc, "calloc", 131) \
	X(in_handler, "malloc", 257)         \
	X(after_jump, "malloc", 521)

#define MODEL_DEFINE
#define _GNU_SOURCE
#include "model.h"

#include <setjmp.h>
#include <signal.h>

extern void (*bump_inside)(void) __attribute__((weak));

static sigjmp_buf out;
static bool allocate, jump;

SITE void in_handler(void)
{
	void *p = malloc(SIZE(in_handler));

	allocated(ID_in_handler, p, SIZE(in_handler));
}

static void on_signal(int sig)
{
	(void)sig;
	if (allocate)
		in_handler();
	if (jump)
		siglongjmp(out, 1);
}

static void raise_usr1(void)
{
	raise(SIGUSR1);
}

SITE void interrupted(void)
{
	void *p;

	bump_inside = raise_usr1;
	p = malloc(SIZE(interrupted));
	allocated(ID_interrupted, p, SIZE(interrupted));
}

SITE void interrupted_calloc(void)
{
	void *p;

	bump_inside = raise_usr1;
	p = calloc(SIZE(interrupted_calloc), 1);
	allocated(ID_interrupted_calloc, p, SIZE(interrupted_calloc));
}

SITE void after_jump(void)
{
	void *p = malloc(SIZE(after_jump)), *q = malloc(SIZE(after_jump));
	struct ref r = allocated(ID_after_jump, p, SIZE(after_jump));

	allocated(ID_after_jump, q, SIZE(after_jump));
	released(&r);
	free(p);
}

static void round_of(void (*site)(void), bool allocates, bool jumps)
{
	allocate = allocates;
	jump = jumps;
	if (sigsetjmp(out, 1) == 0)
		site();
	after_jump();
}

int main(void)
{
	int i;

	CHECK(&bump_inside);
	signal(SIGUSR1, on_signal);
	attach();
	for (i = 0; i < 200; i++) {
		round_of(i % 2 ? interrupted : interrupted_calloc, true, false);
		round_of(i % 2 ? interrupted : interrupted_calloc, false, true);
		round_of(i % 2 ? interrupted : interrupted_calloc, true, true);
	}
	report();
	return 0;
}
