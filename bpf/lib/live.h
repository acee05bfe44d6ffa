/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The outstanding allocations, and the counters of their sites. These two maps
 * are the truth: they are changed here and only read by user space, so that a
 * slow reader can delay the picture and never falsify it.
 */
#ifndef UNFREED_LIVE_H
#define UNFREED_LIVE_H

#include "function.h"
#include "sample.h"
#include "stack.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 22);
	__type(key, struct live_key);
	__type(value, struct outstanding);
} live SEC(".maps");

/* Tells user space of a sampled allocation, or takes that back. */
static __always_inline void sample_send(struct outstanding *l, int undo)
{
	struct sample_record r = {
		.type = RECORD_SAMPLE,
		.function = l->function,
		.site = l->site,
		.size = l->size,
		.undo = undo,
	};

	if (sample_bytes > 1 && bpf_ringbuf_output(&events, &r, sizeof(r), wake()))
		count(COUNT_SAMPLE_LOST);
}

/* Takes an allocation out of its site's books, as if it never was if undo. */
static __always_inline void site_subtract(struct outstanding *l, int undo)
{
	struct site *s = bpf_map_lookup_elem(&sites, &l->site);

	if (!s)
		return;
	if (undo) {
		__sync_fetch_and_add(&s->alloc_objects, -1ULL);
		__sync_fetch_and_add(&s->alloc_bytes, -l->size);
	} else {
		__sync_fetch_and_add(&s->free_objects, 1);
		__sync_fetch_and_add(&s->free_bytes, l->size);
	}
}

/*
 * Puts an allocation where one is outstanding already: made by a call inside
 * this one, since op, which is undone; or by one whose free was not seen, which
 * is then freed.
 */
static __always_inline int live_replace(struct live_key *key, struct outstanding *l, __u64 op)
{
	struct outstanding *old = bpf_map_lookup_elem(&live, key), was;

	if (old) {
		was = *old;
		if (was.tid == l->tid && was.op > op) {
			site_subtract(&was, 1);
			sample_send(&was, 1);
			count_n(COUNT_ALLOCATIONS, -1ULL);
			count_n(COUNT_ALLOCATED_BYTES, -was.size);
			count(COUNT_NESTED);
		} else {
			site_subtract(&was, 0);
			count(COUNT_REPLACED);
			count_n(COUNT_FREED_BYTES, was.size);
		}
	}
	return bpf_map_update_elem(&live, key, l, BPF_ANY);
}

/*
 * Books an allocation that succeeded.
 *
 * Of nested calls that return the same memory (calloc that calls malloc) the
 * outermost counts.
 */
static __always_inline void live_add(struct thread *t, struct pt_regs *ctx, struct inflight *c,
				     __u64 address, __u64 space)
{
	struct live_key key = { .address = address, .space = space };
	struct outstanding l = {};
	struct site *s = 0;
	__u64 site;
	int err; /* before Linux 6.4 the helper's upper half is undefined */

	site = site_take(t, ctx, c->function, c->size, &s);
	if (!site || !s)
		return;
	l.size = c->size;
	l.site = site;
	l.time = bpf_ktime_get_ns();
	l.tid = (__u32)bpf_get_current_pid_tgid();
	l.function = c->function;
	l.op = ++t->op;
	if (t->last_free == address)
		t->last_free = 0;
	err = bpf_map_update_elem(&live, &key, &l, BPF_NOEXIST);
	if (err == -EEXIST)
		err = live_replace(&key, &l, c->op);
	if (err) {
		count(COUNT_LIVE_FULL);
		return;
	}
	sample_send(&l, 0);
	__sync_fetch_and_add(&s->alloc_objects, 1);
	__sync_fetch_and_add(&s->alloc_bytes, c->size);
	count(COUNT_ALLOCATIONS);
	count_n(COUNT_ALLOCATED_BYTES, c->size);
}

/* glibc malloc/malloc.c: the word before a chunk's memory holds its size with
 * three flag bits, the size word itself included. */
static __always_inline void unmatched(__u64 address, __u32 glibc)
{
	__u64 head;

	count(COUNT_FREES_UNMATCHED);
	if (glibc && !(address & 15) && !read_user(&head, 8, address - 8))
		count_n(COUNT_UNMATCHED_BYTES, (head & ~7ULL) - 8);
}

/* Books that an outstanding allocation was freed. */
static __always_inline void live_freed(struct outstanding *was)
{
	site_subtract(was, 0);
	count(COUNT_FREES);
	count_n(COUNT_FREED_BYTES, was->size);
}

/*
 * While a thread resizes a block, the block stands in the books under a name of
 * the thread's own. Other threads can be given its address before the resizing
 * call returns, so nothing may be booked under the address then; and nobody else
 * has it before the call begins to free it.
 */
static __always_inline struct live_key resize_key(__u64 address, __u64 space)
{
	struct live_key key = {
		.address = address,
		.space = space | bpf_get_current_pid_tgid() << 32,
	};

	return key;
}

static __always_inline void resize_begin(struct inflight *c, __u64 space)
{
	struct live_key key = { .address = c->ptr, .space = space };
	struct live_key own = resize_key(c->ptr, space);
	struct outstanding *l, was;

	c->moved = 0;
	l = bpf_map_lookup_elem(&live, &key);
	if (!l)
		return;
	was = *l;
	if (bpf_map_update_elem(&live, &own, &was, BPF_ANY)) {
		count(COUNT_LIVE_FULL);
		return;
	}
	bpf_map_delete_elem(&live, &key);
	c->moved = 1;
}

/* Is an unknown block that was just resized one that a call inside this one has
 * dealt with, as realloc does in reallocarray? */
static __always_inline int resized_inside(struct thread *t, struct inflight *c, __u64 space)
{
	struct live_key key = { .address = c->ptr, .space = space };
	struct live_key own = resize_key(c->ptr, space);
	struct outstanding *l;

	if (t->last_free == c->ptr || bpf_map_lookup_elem(&live, &own))
		return 1;
	l = bpf_map_lookup_elem(&live, &key);
	return l && l->tid == (__u32)bpf_get_current_pid_tgid() && l->op > c->op;
}

/* Ends what resize_begin began. freed says that the block is gone, quiet that it
 * has been counted if it was unknown. */
static __always_inline void resize_end(struct thread *t, struct inflight *c, __u64 space, int freed,
				       int quiet, __u32 glibc)
{
	struct live_key key = { .address = c->ptr, .space = space };
	struct live_key own = resize_key(c->ptr, space);
	struct outstanding *l, was;

	if (!c->moved) {
		if (!freed || quiet || sample_bytes > 1 || resized_inside(t, c, space))
			return;
		unmatched(c->ptr, glibc);
		t->last_free = c->ptr;
		return;
	}
	l = bpf_map_lookup_elem(&live, &own);
	if (!l)
		return;
	was = *l;
	bpf_map_delete_elem(&live, &own);
	if (freed)
		live_freed(&was);
	else if (bpf_map_update_elem(&live, &key, &was, BPF_NOEXIST))
		count(COUNT_LIVE_FULL);
}

/*
 * Books a free. Some functions call another one that frees the same memory
 * (free_sized, or realloc as some implement it): it is freed once. flags are the
 * function's.
 */
static __always_inline void live_remove(__u64 address, __u64 space, __u32 flags)
{
	struct live_key key = { .address = address, .space = space };
	struct outstanding *l = bpf_map_lookup_elem(&live, &key);
	struct thread *t;

	if (l) {
		struct outstanding was = *l;

		if (bpf_map_delete_elem(&live, &key))
			return;
		live_freed(&was);
		if (!(flags & FUNCTION_NESTS))
			return;
	} else if (sample_bytes > 1) {
		return; /* mostly what was not sampled */
	}
	t = thread_get();
	if (!t) {
		count(COUNT_NO_SCRATCH);
		return;
	}
	if (!l && t->last_free != address) {
		struct live_key own = resize_key(address, space);

		if (bpf_map_lookup_elem(&live, &own))
			return; /* by the resizing call, which books it */
		unmatched(address, flags & FUNCTION_GLIBC);
	}
	t->last_free = address;
}

#endif
