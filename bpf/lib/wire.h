/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs and user space say to each other: keys and values of maps,
 * and the records of the ring buffer. bpf2go makes the Go twins from BTF.
 */
#ifndef UNFREED_WIRE_H
#define UNFREED_WIRE_H

#include "kernel.h"

#define MAX_NATIVE 256 /* native frames of a stack; a power of two */
#define MAX_PYTHON 256 /* Python frames of a stack; a power of two */

/*
 * An index below n, a power of two, in a form that the compiler cannot prove
 * away: the verifier does not follow the reasoning that would let it.
 */
#define INDEX(x, n)                                                   \
	({                                                            \
		__u64 index_ = (x);                                   \
		asm volatile("%0 &= %1" : "+r"(index_) : "i"((n)-1)); \
		index_;                                               \
	})

/* An outstanding allocation is known by its address in an address space: host
 * and device pointers may be equal numbers. */
struct live_key {
	__u64 address;
	__u64 space; /* alloc.Kind; above it the thread that is resizing the block, or 0 */
};

struct outstanding {
	__u64 size; /* bytes asked for */
	__u64 site; /* key of sites */
	__u64 time; /* CLOCK_MONOTONIC, ns, at the call's return */
	__u64 op;   /* the thread's count of captured calls then */
	__u32 tid;
	__u32 function; /* row of functions */
};

/* Everything one function handed out from one stack. */
struct site {
	__u64 alloc_objects, alloc_bytes;
	__u64 free_objects, free_bytes;
	__u64 sent; /* nonzero once its stack record is in the ring */
};

enum record_type {
	RECORD_STACK = 1,
	RECORD_CODE = 2,
	RECORD_MAP = 3,
	RECORD_UNKNOWN_PC = 4,
	RECORD_EXEC = 5,
	RECORD_SAMPLE = 6,
	RECORD_LOADER = 7,
	RECORD_RAW = 8,
};

/* Why an unwinding ended. Everything but DONE is a partial stack. */
enum unwind_status {
	UNWIND_RUNNING = 0,
	UNWIND_DONE = 1,       /* reached the thread's start */
	UNWIND_NO_MAPPING = 2, /* an address in no known mapping */
	UNWIND_NO_ROW = 3,     /* a mapping without unwind rows for the address */
	UNWIND_FAULT = 4,      /* stack memory not readable */
	UNWIND_TOO_DEEP = 5,   /* more than MAX_NATIVE frames */
	UNWIND_INVALID = 6,    /* the row says that it cannot be unwound */
	UNWIND_OFF = 7,	       /* native unwinding not asked for */
};

enum python_status {
	PYTHON_OFF = 0, /* no interpreter, or an unknown one */
	PYTHON_DONE = 1,
	PYTHON_NO_THREAD = 2, /* the thread has no Python state */
	PYTHON_FAULT = 3,     /* interpreter memory not readable */
	PYTHON_TOO_DEEP = 4,  /* more than MAX_PYTHON frames */
};

/* python_frame.flags */
#define FRAME_ENTRY 1 /* an eval call begins at this frame, or it is a shim */

struct python_frame {
	__u64 code;	/* key of the code record, 0 for a shim */
	__s32 position; /* bytes from the code's first instruction, or f_lasti */
	__u16 owner;	/* the byte that tells an entry */
	__u16 flags;
};

/* Followed by native addresses (u64), then struct python_frame. Leaf first. */
struct stack_record {
	__u32 type;
	__u32 function;
	__u64 site;
	__u32 native_count, python_count;
	__u32 native_status, python_status;
	__u64 maps_generation; /* of the mappings the stack was unwound with */
	__u32 tid, pad;
	__u64 size; /* of the first allocation */
};

#define RAW_BYTES (16 << 10)

/* The memory of a stack that could not be unwound, from sp on, and the
 * registers of its last known frame. Comes before the site's stack_record. */
struct raw_record {
	__u32 type, length;
	__u64 site, ip, sp, bp;
	__u8 data[RAW_BYTES];
};

#define CODE_FILENAME_MAX 512
#define CODE_NAME_MAX 256
#define CODE_LINETABLE_MAX 4096

/* A code object, copied while a frame keeps it alive. */
struct code_record {
	__u32 type;
	__s32 first_line;
	__u64 key;
	__u64 address;
	__u64 ident[4];
	__u32 filename_len, name_len, linetable_len; /* bytes copied of each object */
	__s32 first_traceable;
	__u8 filename[CODE_FILENAME_MAX];
	__u8 name[CODE_NAME_MAX];
	__u8 linetable[CODE_LINETABLE_MAX];
};

struct map_record {
	__u32 type;
	__u32 role; /* of the function: map, unmap or remap */
	__u64 address, length;
	__u64 new_address, new_length; /* remap only */
	__u64 entry_time, time;
	__u64 site; /* 0 where no stack was taken */
	__u32 function, tid;
	__u32 protection; /* of mmap */
	__u32 flags;	  /* of mmap or mremap */
};

/* An address that no known mapping holds, seen while unwinding. */
struct pc_record {
	__u32 type, pad;
	__u64 pc;
};

struct event_record {
	__u32 type, pad;
	__u64 time;
};

/* One sampled allocation: its size is what the estimate needs. */
struct sample_record {
	__u32 type, function;
	__u64 site, size;
	__u32 undo, pad; /* undo: it was part of another call, take it back */
};

/* Reasons and totals, counted per CPU. Names are in pkg/bpfobj. */
enum counter {
	COUNT_ALLOCATIONS, /* calls captured */
	COUNT_ALLOCATED_BYTES,
	COUNT_FREES, /* matched */
	COUNT_FREED_BYTES,
	COUNT_FREES_UNMATCHED,
	COUNT_UNMATCHED_BYTES, /* by glibc's chunk headers */
	COUNT_FAILED_CALLS,
	COUNT_NESTED,	      /* calls inside another one that returned the same memory */
	COUNT_INTERNAL_MAPS,  /* mmap calls made by the allocator */
	COUNT_REPLACED,	      /* an address handed out again without its free having been seen */
	COUNT_HITS,	      /* runs of any program */
	COUNT_NO_SCRATCH,     /* lost: no per-thread memory */
	COUNT_LIVE_FULL,      /* lost: live is full or out of memory */
	COUNT_SITES_FULL,     /* lost: sites is full or out of memory */
	COUNT_INFLIGHT_FULL,  /* lost: calls nested too deep */
	COUNT_ALTSTACK,	      /* lost: calls in a signal handler whose return must not be probed */
	COUNT_THROWS,	      /* lost: calls of operator new that might throw */
	COUNT_RETURN_UNKNOWN, /* a return whose entry was not seen */
	COUNT_OUT_POINTER,    /* lost: the out pointer could not be read */
	COUNT_STACK_NOT_SENT, /* ring full: sent again with the next allocation */
	COUNT_CODE_NOT_SENT,  /* likewise */
	COUNT_CODE_FAULT,     /* a code object's strings could not be read */
	COUNT_MAP_LOST,	      /* lost: a mapping event */
	COUNT_SAMPLE_LOST,    /* lost: a sample record */
	COUNT_EVENT_LOST,     /* an unknown-pc or exec event; repeated */
	COUNT_SEEN_FULL,      /* codes or sites cannot remember: sent again each time */
	COUNT_FAULTS,	      /* reads that needed the faulting path */
	COUNT_REUSED_FRAMES,  /* frames taken from the thread's last stack */
	COUNT_UNWOUND_FRAMES, /* frames unwound */
	COUNT_REUSE_REFUTED,  /* a suffix whose words had changed */
	COUNT_REPAIRED,	      /* hijacked return addresses put right */
	COUNT_FORKS,	      /* children of the target */
	COUNT_UNWIND,	      /* + unwind_status */
	COUNT_PYTHON = COUNT_UNWIND + 8, /* + python_status */
	COUNT_END = COUNT_PYTHON + 8,
};

/* File-relative address range of executable memory in the target. */
struct mapping {
	__u64 start, end;
	__u64 bias; /* target address - file-virtual address */
	__u32 page_base, page_count;
	__u32 row_base, info_base;
};

/* nativeunwind/stackdeltatypes UnwindInfo; pkg/unwind Info. */
struct unwind_info {
	__u8 flags, base, aux, merge;
	__s32 param, aux_param;
};

/* Offsets in CPython's structures; pkg/python Layout. */
struct python_layout {
	__u64 interpreters; /* address of the pointer to the first interpreter */
	__u64 code_mask;
	__u32 interp_next, interp_threads;
	__u32 thread_next, thread_prev, thread_interp, thread_id, thread_unique_id;
	__u32 thread_frame;
	__s32 frame_indirect; /* -1: thread_frame points to the frame itself */
	__u32 frame_size, frame_code, frame_prev, frame_instr;
	__s32 frame_owner; /* -1: every frame is an entry */
	__u32 entry_value; /* least value of the owner byte that marks an entry */
	__u32 shim;	   /* an entry is a frame without code */
	__u32 instr_is_index;
	__u32 code_ident, code_first_line, code_adaptive;
	__u32 code_first_traceable;			   /* 0: there is none */
	__u32 ident_filename, ident_name, ident_linetable; /* index of a word at code_ident */
	__u32 unicode_header, unicode_min_header, unicode_length;
	__u32 bytes_header, bytes_length;
	__u32 enabled;
};

_Static_assert(sizeof(struct live_key) == 16, "live_key");
_Static_assert(sizeof(struct outstanding) == 40, "live");
_Static_assert(sizeof(struct python_frame) == 16, "python_frame");
_Static_assert(sizeof(struct mapping) == 40, "mapping");
_Static_assert(sizeof(struct unwind_info) == 12, "unwind_info");
_Static_assert(sizeof(struct stack_record) % 8 == 0, "stack_record");

#endif
