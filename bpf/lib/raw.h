/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stacks through code that is not known yet.
 *
 * Between the moment a library is loaded and the moment its unwind rows are
 * here, a stack through it cannot be unwound. Its memory is copied instead, and
 * user space unwinds the copy when it has the rows. Such a stack is named by all
 * words in it that look like return addresses, the stale ones among them too:
 * one path may get several names, which user space makes one again, but two
 * paths never share one.
 */
#ifndef UNFREED_RAW_H
#define UNFREED_RAW_H

#include "ring.h"
#include "unwind.h"

#define RAW_WORDS 8	   /* looked at in one step */
#define NEAR (64ULL << 20) /* other code of the unknown library */
#define STACK_SPAN (8ULL << 20)

/* Cleared by user space for a program that generates code, whose addresses will
 * never be known. */
volatile __u32 raw_on = 1;

static __always_inline int looks_like_code(struct thread *t, __u64 word)
{
	__u64 pc = t->last.ip[LAST];

	if (word < 0x10000 || word >> 47 || word - t->last.sp[LAST] < STACK_SPAN)
		return 0;
	if (word - pc + NEAR < 2 * NEAR)
		return 1;
	return mapping_find(t, word - 1) != 0;
}

static long fingerprint_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u64 addr = t->last.sp[LAST] + i * (8 * RAW_WORDS), word;

	for (int k = 0; k < RAW_WORDS; k++) {
		if (read_word(t, &word, addr + 8 * k))
			return 1;
		if (looks_like_code(t, word))
			t->hash = mix(t->hash, word);
	}
	return 0;
}

/* Adds to the hash what tells the stack beyond its last known frame from
 * others. */
__noinline int raw_fingerprint(struct thread *t)
{
	struct loop loop = { .t = t };

	if (!t)
		return 0;
	t->window_base = t->window_end = 0;
	bpf_loop(RAW_BYTES / (8 * RAW_WORDS), fingerprint_step, &loop, 0);
	return 0;
}

/* Sends the memory of the stack from its last known frame outwards. */
__noinline int raw_send(struct thread *t, __u64 site)
{
	struct raw_record *r;
	__u64 sp;

	if (!t)
		return -1;
	sp = t->last.sp[LAST];
	r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);
	if (!r) {
		count(COUNT_STACK_NOT_SENT);
		return -1;
	}
	r->type = RECORD_RAW;
	r->length = 0;
	r->site = site;
	r->ip = t->last.ip[LAST];
	r->sp = sp;
	r->bp = t->last.bp[LAST];
	/* The stack may end before the copy does. */
	if (!read_user(r->data, RAW_BYTES, sp))
		r->length = RAW_BYTES;
	else if (!read_user(r->data, RAW_BYTES / 2, sp))
		r->length = RAW_BYTES / 2;
	else if (!read_user(r->data, RAW_BYTES / 4, sp))
		r->length = RAW_BYTES / 4;
	else if (!read_user(r->data, RAW_BYTES / 16, sp))
		r->length = RAW_BYTES / 16;
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
	return 0;
}

#endif
