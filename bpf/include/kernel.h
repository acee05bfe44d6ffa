/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types the programs look at. Every access is relocated (CO-RE),
 * so only the names of fields matter here, not their places.
 */
#ifndef UNFREED_KERNEL_H
#define UNFREED_KERNEL_H

#include <linux/types.h>

/* From uapi/linux/bpf.h, which cannot be used beside these types. */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
/* uapi/asm-generic/resource.h */
#define RLIMIT_DATA 2
#define RLIMIT_AS 9

#define EEXIST 17 /* uapi/asm-generic/errno-base.h */
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)
#define BPF_RB_NO_WAKEUP (1ULL << 0)
#define BPF_RB_FORCE_WAKEUP (1ULL << 1)
#define BPF_RB_AVAIL_DATA 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

/* Filled by bpf_get_ns_current_pid_tgid; uapi/linux/bpf.h. */
struct bpf_pidns_info {
	__u32 pid;
	__u32 tgid;
};

#if defined(__TARGET_ARCH_x86)
/* The context of a uprobe program: arch/x86/include/asm/ptrace.h, and an ABI
 * of BPF_PROG_TYPE_KPROBE, hence not relocated. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#else
#error "only x86-64 is supported"
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* kernel/events/uprobes.c: a return address that the kernel has replaced by
 * its trampoline, and where the original one is kept. */
struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	_Bool chained;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

struct thread_struct {
	unsigned long fsbase;
};

struct rlimit {
	unsigned long rlim_cur;
};

struct signal_struct {
	struct rlimit rlim[16];
};

struct mm_struct {
	unsigned long total_vm; /* pages mapped */
	unsigned long data_vm;	/* of these private and writable */
	int map_count;
};

struct task_struct {
	struct mm_struct *mm;
	struct signal_struct *signal;
	int tgid;
	struct uprobe_task *utask;
	struct thread_struct thread;
	unsigned long sas_ss_sp; /* of sigaltstack(2) */
	unsigned long sas_ss_size;
};

#pragma clang attribute pop

#endif
