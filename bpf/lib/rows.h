/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target's executable mappings and the unwind rows of their files, packed as
 * pkg/unwind does, and how to find the row that holds for an address.
 */
#ifndef UNFREED_ROWS_H
#define UNFREED_ROWS_H

#include "thread.h"
#include "wire.h"
#include <bpf/bpf_helpers.h>

#define MAX_MAPPINGS 8192 /* a half of the mappings array */

/* Two halves; the one in use and its count are in mappings_in_use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_MAPPINGS);
	__type(key, __u32);
	__type(value, struct mapping);
} mappings SEC(".maps");

/* first << 32 | count, and a number that changes with every change of it. */
volatile __u64 mappings_in_use = 0;
volatile __u64 mappings_generation = 0;

/* Changes when addresses have got another meaning (a library unloaded and
 * another one in its place), so that equal addresses are another stack. */
volatile __u64 address_epoch = 0;

/* Both hold u32s, two to an element: array elements are padded to 8 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unwind_pages SEC(".maps"), unwind_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_info);
} unwind_infos SEC(".maps");

static __always_inline struct mapping *mapping_find(struct thread *t, __u64 pc)
{
	__u64 in_use = mappings_in_use;
	__u32 first = in_use >> 32, lo = first, hi = lo + (__u32)in_use, k;
	struct mapping *m;

	k = t->last_mapping;
	if (k >= lo && k < hi) {
		m = bpf_map_lookup_elem(&mappings, &k);
		if (m && pc >= m->start && pc < m->end)
			return m;
	}
	for (int i = 0; i < 14 && lo < hi; i++) {
		__u32 mid = (lo + hi) >> 1;

		m = bpf_map_lookup_elem(&mappings, &mid);
		if (!m)
			return 0;
		if (pc >= m->end)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo >= first + (__u32)in_use)
		return 0;
	m = bpf_map_lookup_elem(&mappings, &lo);
	if (!m || pc < m->start || pc >= m->end)
		return 0;
	t->last_mapping = lo;
	return m;
}

static __always_inline int half_word(void *map, __u32 i, __u32 *out)
{
	__u32 k = i >> 1;
	__u64 *p = bpf_map_lookup_elem(map, &k);

	if (!p)
		return -1;
	*out = i & 1 ? *p >> 32 : *p;
	return 0;
}

/* Finds the row that holds for pc, and how far pc lies behind its start. */
static __always_inline int row_find(struct mapping *m, __u64 pc, __u32 *info, __u32 *distance)
{
	__u64 vaddr = pc - m->bias;
	__u32 page = vaddr >> 12, off = vaddr & 0xfff, lo, hi, first, row;

	if ((vaddr >> 12) + 1 >= m->page_count)
		return -1;
	if (half_word(&unwind_pages, m->page_base + page, &lo) ||
	    half_word(&unwind_pages, m->page_base + page + 1, &hi))
		return -1;
	first = lo;
	for (int i = 0; i < 13 && lo < hi; i++) {
		__u32 mid = (lo + hi) >> 1;

		if (half_word(&unwind_rows, m->row_base + mid, &row))
			return -1;
		if ((row >> 20) <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -1;
	lo--;
	if (half_word(&unwind_rows, m->row_base + lo, &row))
		return -1;
	*info = m->info_base + (row & 0xfffff);
	/* A row of an earlier page is at least that far away, which is all
	 * that a merged row asks. */
	*distance = lo < first ? 4096 : off - (row >> 20);
	return 0;
}

#endif
