/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Poisson sampling by bytes: a thread's allocations are a line of bytes on
 * which points lie at exponential distances, and an allocation is taken if a
 * point falls into it. The probability of size s is 1 - exp(-s/rate), by which
 * user space divides.
 */
#ifndef UNFREED_SAMPLE_H
#define UNFREED_SAMPLE_H

#include "thread.h"

#define EXP_BITS 10
#define EXP_SHIFT 20

/* Mean distance of the points in bytes; 1 takes every allocation. */
const volatile __u64 sample_bytes = 1;

/* -ln(i / 2^EXP_BITS) in 1/2^EXP_SHIFT for i > 0, and [0] = [1]: where the tail
 * begins. Filled in by user space. */
const volatile __u32 exponential[(1 << EXP_BITS) + 1] = {};

static __always_inline __u64 random_next(struct thread *t)
{
	__u64 r = t->random;

	if (!r)
		r = bpf_get_prandom_u32() | (__u64)bpf_get_prandom_u32() << 32 | 1;
	/* xorshift64, Marsaglia 2003 */
	r ^= r << 13;
	r ^= r >> 7;
	r ^= r << 17;
	t->random = r;
	return r;
}

/* An exponential distance: the table, linear in between. */
static __always_inline __s64 sample_distance(struct thread *t)
{
	__u64 steps = 0;

	for (int k = 0; k < 8; k++) {
		__u64 r = random_next(t);
		__u32 i = (r >> 40) & ((1 << EXP_BITS) - 1), fraction = r & 0xffff;
		__u64 from = exponential[i], to = exponential[i + 1];

		if (i) {
			steps += from - ((from - to) * fraction >> 16);
			break;
		}
		/* Beyond the table the distribution begins anew: it has no memory. */
		steps += from;
	}
	/* steps is below 2^26, sample_bytes at most 2^36. */
	return (__s64)(steps * sample_bytes >> EXP_SHIFT) + 1;
}

static __always_inline int sample_draw(struct thread *t, __u64 size)
{
	if (!t->random)
		t->countdown = sample_distance(t);
	if (t->countdown > (__s64)size) {
		t->countdown -= size;
		return 0;
	}
	t->countdown = sample_distance(t);
	return 1;
}

/*
 * Is an allocation taken? A call inside another one that returned the same
 * memory has been asked already; both stand or fall together.
 */
static __always_inline int sample_hit(struct thread *t, __u64 address, __u64 size, __u64 op)
{
	if (sample_bytes <= 1)
		return 1;
	if (t->sampled_address == address && t->sampled_op > op)
		return t->sampled_hit;
	t->sampled_address = address;
	t->sampled_op = ++t->op;
	t->sampled_hit = sample_draw(t, size);
	return t->sampled_hit;
}

#endif
