/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mmap, munmap and mremap. They work on ranges, which a hash cannot hold, so
 * the calls are streamed and user space does the arithmetic (pkg/ledger). They
 * are rare beside allocations.
 */
#ifndef UNFREED_MAPCALL_H
#define UNFREED_MAPCALL_H

#include "function.h"
#include "stack.h"

/* uapi/asm-generic/mman-common.h */
#define PROT_NONE 0
#define MAP_ANONYMOUS 0x20

/*
 * mmap(addr, length, prot, flags, fd, offset)
 * munmap(addr, length)
 * mremap(addr, length, new_length, flags, new_addr)
 */
static __always_inline void map_enter(struct pt_regs *ctx, __u32 role, struct inflight *c)
{
	c->time = bpf_ktime_get_ns();
	c->ptr = CTX(ctx, di);
	c->size = CTX(ctx, si);
	if (role == ROLE_MAP) {
		c->extra = (__u32)CTX(ctx, dx) | CTX(ctx, cx) << 32;
	} else if (role == ROLE_REMAP) {
		c->extra = CTX(ctx, dx);
		c->out = CTX(ctx, cx);
	}
}

/* Is the call made by an allocator function of this thread? Then its memory is
 * counted as what that function hands out. */
static __always_inline int map_is_internal(struct thread *t, __u64 sp)
{
	__u32 d = t->depth, row;
	struct function *f;

	for (int i = 0; i < MAX_INFLIGHT; i++) {
		if ((__u32)i >= d)
			break;
		if (t->inflight[i].sp <= sp)
			continue;
		row = t->inflight[i].function;
		f = bpf_map_lookup_elem(&functions, &row);
		if (f && f->role < ROLE_MAP)
			return 1;
	}
	return 0;
}

static __always_inline void map_return(struct pt_regs *ctx, struct thread *t, __u32 role,
				       struct inflight *c, __u64 ax)
{
	struct map_record r = { .type = RECORD_MAP, .role = role };
	__u32 row = c->function, anonymous = 1;
	struct site *s = 0;

	if (role == ROLE_UNMAP ? (__u32)ax != 0 : ax == ~0ULL) {
		count(COUNT_FAILED_CALLS);
		return;
	}
	r.time = bpf_ktime_get_ns();
	r.entry_time = c->time;
	r.function = row;
	r.tid = (__u32)bpf_get_current_pid_tgid();
	r.address = role == ROLE_MAP ? ax : c->ptr;
	r.length = c->size;
	if (role == ROLE_MAP) {
		r.protection = (__u32)c->extra;
		r.flags = c->extra >> 32;
		anonymous = (r.flags & MAP_ANONYMOUS) && r.protection != PROT_NONE;
	} else if (role == ROLE_REMAP) {
		r.new_address = ax;
		r.new_length = c->extra;
		r.flags = c->out;
	}
	if (map_is_internal(t, c->sp)) {
		count(COUNT_INTERNAL_MAPS);
		return;
	}
	if (role != ROLE_UNMAP && anonymous) {
		r.site = site_take(t, ctx, row, r.new_length ?: r.length, &s);
		if (!r.site)
			return;
	}
	if (bpf_ringbuf_output(&events, &r, sizeof(r), wake()))
		count(COUNT_MAP_LOST);
}

#endif
