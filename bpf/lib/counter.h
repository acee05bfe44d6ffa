/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of everything that happened and everything that went wrong. */
#ifndef UNFREED_COUNTER_H
#define UNFREED_COUNTER_H

#include "wire.h"
#include <bpf/bpf_helpers.h>

/* Indexed by enum counter. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNT_END);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* The programs are preemptible, so even a per-CPU counter needs an atomic. */
static __always_inline void count_n(__u32 which, __u64 n)
{
	__u64 *c = bpf_map_lookup_elem(&counters, &which);

	if (c)
		__sync_fetch_and_add(c, n);
}

static __always_inline void count(__u32 which)
{
	count_n(which, 1);
}

#endif
