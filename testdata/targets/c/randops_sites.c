// SPDX-License-Identifier: Apache-2.0

/*
 * The sites of randops, which see.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <sys/mman.h>

#include "randops.h"
#include "talk.h"

/* perform makes the call: the leaf of every stack. */
SITE static void perform(struct op *o)
{
	void *p = NULL;

	switch (o->function) {
	case FN_malloc:
		p = malloc(o->size);
		break;
	case FN_calloc:
		p = calloc(o->size, 1);
		break;
	case FN_realloc:
		p = realloc(o->old, o->size);
		break;
	case FN_reallocarray:
		p = reallocarray(o->old, 1, o->size);
		break;
	case FN_posix_memalign:
		CHECK(posix_memalign(&p, 64, o->size) == 0);
		break;
	case FN_aligned_alloc:
		p = aligned_alloc(64, o->size);
		break;
	case FN_memalign:
		p = memalign(128, o->size);
		break;
	case FN_valloc:
		p = valloc(o->size);
		break;
	case FN_mmap:
		p = mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		break;
	case FN_mremap:
		p = mremap(o->old, o->old_size, o->size, MREMAP_MAYMOVE);
		break;
	}
	CHECK(p && p != MAP_FAILED);
	o->result = p;
}

SITE void deep(int n, step *f, struct op *o)
{
	if (n == 0)
		f(o);
	else
		deep(n - 1, f, o);
	KEEP(o);
}

#define PLAIN(name)                  \
	SITE void name(struct op *o) \
	{                            \
		perform(o);          \
		KEEP(o);             \
	}
PLAIN(plain_a)
PLAIN(plain_b)
PLAIN(plain_c)
PLAIN(plain_d)
PLAIN(plain_e)
PLAIN(plain_f)
PLAIN(plain_g)

#define DEEP(name, n)                \
	SITE void name(struct op *o) \
	{                            \
		deep(n, perform, o); \
		KEEP(o);             \
	}
DEEP(deep_3, 3)
DEEP(deep_30, 30)
DEEP(deep_200, 200)
DEEP(far_a, 100)
DEEP(far_b, 100)
DEEP(far_c, 100)
DEEP(far_d, 100)

#define MIDDLE(name)                  \
	SITE void name(struct op *o)  \
	{                             \
		deep(50, perform, o); \
		KEEP(o);              \
	}
MIDDLE(middle_a)
MIDDLE(middle_b)
MIDDLE(middle_c)

SITE void vla(struct op *o)
{
	char frame[(o->size & 255) + 1];
	char *p = frame;

	KEEP(p);
	perform(o);
	KEEP(p);
}

SITE void realigned(struct op *o)
{
	_Alignas(64) char frame[64];
	char *p = frame;

	KEEP(p);
	perform(o);
	KEEP(p);
}

#ifdef __x86_64__
/* Two frames of one shape. rewrite_body is entered from the first and, having
   overwritten its return address, returns into the second. */
#define REWRITE(name)                                        \
	__asm__(".text\n"                                    \
		".globl " #name "\n"                         \
		".type " #name ", @function\n" #name ":\n"   \
		".cfi_startproc\n"                           \
		"push %rbp\n"                                \
		".cfi_def_cfa_offset 16\n"                   \
		".cfi_offset %rbp, -16\n"                    \
		"lea -8(%rsp), %rsi\n"                       \
		"call rewrite_body\n"                        \
		".globl " #name "_after\n" #name "_after:\n" \
		"pop %rbp\n"                                 \
		".cfi_def_cfa_offset 8\n"                    \
		"ret\n"                                      \
		".cfi_endproc\n"                             \
		".size " #name ", . - " #name "\n")
REWRITE(rewrite_a);
REWRITE(rewrite_b);
extern char rewrite_b_after[];

SITE void rewrite_leaf(struct op *o)
{
	perform(o);
	*(void *volatile *)o->slot = rewrite_b_after;
	perform(o->second);
	KEEP(o);
}

SITE void rewrite_body(struct op *o, void **slot)
{
	o->slot = slot;
	deep(20, rewrite_leaf, o);
	KEEP(o);
}

void rewrite(struct op *o)
{
	rewrite_a(o);
}
#else
DEEP(rewrite_a, 20)
DEEP(rewrite_b, 20)

void rewrite(struct op *o)
{
	rewrite_a(o);
	rewrite_b(o->second);
}
#endif
