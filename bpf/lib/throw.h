/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * C++ functions that throw when memory runs out. An exception cannot pass the
 * trampoline of a return probe: where the target would have caught bad_alloc, it
 * ends in std::terminate. So a call is left alone if it may fail: memory runs out
 * by a limit on the address space, on data, on the number of mappings, or by the
 * kernel's refusal of a single request (mm/util.c __vm_enough_memory). Running
 * out of physical memory is no such reason: then the kernel kills.
 */
#ifndef UNFREED_THROW_H
#define UNFREED_THROW_H

#include "wire.h"
#include <bpf/bpf_helpers.h>

/* What an allocator may map at once for a small request, in pages. */
#define THROW_SLACK ((128ULL << 20) >> 12)
#define MAPPINGS_SLACK 1024

/* Set by user space: a request of as many bytes may be refused, and how many
 * mappings a process may have. 0 refuses everything. */
const volatile __u64 refused_bytes = 0;
const volatile __u64 max_mappings = 0;

static __always_inline int limit_near(__u64 limit, __u64 pages, __u64 size)
{
	return limit != ~0ULL && pages + (size >> 12) + THROW_SLACK > limit >> 12;
}

static __always_inline int may_throw(__u64 size)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	struct signal_struct *sig = task->signal;

	if (size >= refused_bytes || !mm || !sig)
		return 1;
	return limit_near(sig->rlim[RLIMIT_AS].rlim_cur, mm->total_vm, size) ||
	       limit_near(sig->rlim[RLIMIT_DATA].rlim_cur, mm->data_vm, size) ||
	       mm->map_count + MAPPINGS_SLACK > max_mappings;
}

#endif
