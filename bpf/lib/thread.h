/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Per-thread state and scratch. It lives in task storage: the programs are
 * preemptible, so per-CPU scratch could be shared by two of them.
 */
#ifndef UNFREED_THREAD_H
#define UNFREED_THREAD_H

#include "wire.h"
#include <bpf/bpf_helpers.h>

#define WINDOW 2048	/* bytes of stack read at once; a power of two, under a page */
#define THREAD_READ 192 /* bytes that hold all fields read of a Python thread state */
#define MAX_INFLIGHT 8
#define NAMED_FRAMES 256 /* a power of two */
#define KNOWN_ROWS 256	 /* likewise */

/* A word whose value a frame was derived from besides its return address. */
#define NOT_A_WORD 0
#define UNVERIFIABLE 1 /* derived from something that cannot be compared later */

/* Registers as far as unwind rows refer to them. */
struct registers {
	__u64 ip, sp, bp;
	__u64 ax, di, r8, r9, r11, r13, r15;
};

/* Frames in parallel arrays: verification walks few of them over many frames. */
struct frames {
	__u64 ip[MAX_NATIVE];
	__u64 sp[MAX_NATIVE];
	__u64 bp[MAX_NATIVE];
	__u64 bp_slot[MAX_NATIVE];  /* where the caller's bp was read, or NOT_A_WORD */
	__u64 cfa_slot[MAX_NATIVE]; /* where the CFA was read, NOT_A_WORD or UNVERIFIABLE */
	__u64 cfa_word[MAX_NATIVE]; /* what was read there */
};

/* A probed call that has been entered and has not returned. */
struct inflight {
	__u64 sp; /* at entry */
	__u64 size, ptr, out;
	__u64 extra; /* mmap: prot | flags << 32; mremap: new length */
	__u64 time;
	__u64 op;
	__u32 function;
	__u32 moved; /* of a resizing call: its block stands under the thread's own name */
};

/* The name of a code object as last read through one of its frames. */
struct named_frame {
	__u64 frame, code, key;
	__u64 capture; /* the capture in whose stack the frame was */
};

/* The unwind rule of an address that was looked up before. */
struct known_row {
	__u64 tag; /* the address and the generation of the mappings */
	__u32 info, distance;
};

struct thread {
	/* calls */
	struct inflight inflight[MAX_INFLIGHT];
	__u32 depth;
	__u32 pad0;
	__u64 op;	 /* captured calls so far */
	__u64 last_free; /* address of the last free that was entered */
	/* sampling */
	__s64 countdown; /* bytes until the next sample */
	__u64 random;
	__u64 sampled_address, sampled_op; /* the last allocation that was asked */
	__u32 sampled_hit, pad1;

	/* unwinding */
	struct registers start; /* of the stack to unwind */
	struct registers regs;	/* of the frame at hand */
	__u64 window_base, window_end;
	__u64 hash;
	__u64 generation; /* of the mappings that the kept stack was unwound with */
	__u64 bp_slot, cfa_slot, cfa_word;
	__u64 end_slot; /* where the stack's closing null return address lies, or NOT_A_WORD */
	__u32 native_count, native_status;
	__u32 last_mapping;
	__u32 is_leaf; /* ip is an instruction, not a return address */
	__u32 kept;    /* frames of the last stack, at the end of kept_* */
	__u32 join;    /* index in kept_* where the new stack meets the last one; 0 = nowhere */
	__u32 cursor;
	__u32 verified;

	struct known_row rows[KNOWN_ROWS]; /* by address */

	/* Python */
	__u64 tstate, python_frame_ptr;
	__u64 threads_head, threads_head_id; /* when the thread was last found to have no state */
	__u64 walk_interp, walk_thread, found, found_running;
	__u32 python_count, python_status;
	__u32 codes_unsent; /* a code object of the stack did not fit into the ring */
	__u32 frame_at;	    /* where in window the frame at hand begins */
	__u8 tstate_copy[THREAD_READ];
	__u64 capture;				/* number of this capture */
	struct named_frame named[NAMED_FRAMES]; /* by frame address */
	__u64 python_code[MAX_PYTHON];		/* addresses of the code objects of record.python */

	/* The last stack, its outermost frame at MAX_NATIVE - 1, so that a
	 * suffix never moves; hash[i] covers i and all frames outside it. */
	struct frames last;
	__u64 last_hash[MAX_NATIVE];
	struct frames new; /* innermost first */
	__u8 window[WINDOW + 8];

	struct {
		struct stack_record header;
		__u64 native[MAX_NATIVE];
		struct python_frame python[MAX_PYTHON];
	} record;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *thread_get(void)
{
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

#endif
