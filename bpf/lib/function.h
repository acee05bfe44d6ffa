/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of probed functions, a row of which is named by a probe's cookie. */
#ifndef UNFREED_FUNCTION_H
#define UNFREED_FUNCTION_H

#include "wire.h"
#include <bpf/bpf_helpers.h>

#define MAX_FUNCTIONS 512

/* pkg/alloc: Role, Result and Function. */
enum role {
	ROLE_ALLOC = 1,
	ROLE_FREE,
	ROLE_REALLOC,
	ROLE_MAP,
	ROLE_UNMAP,
	ROLE_REMAP,
};

enum result {
	RESULT_POINTER,
	RESULT_STATUS,
	RESULT_MAP,
};

#define NO_ARG (-1)
/* function.flags */
#define FUNCTION_GLIBC 1  /* its memory has glibc's chunk headers */
#define FUNCTION_NESTS 2  /* it may call another function that frees the same memory */
#define FUNCTION_THROWS 4 /* it leaves by a C++ exception when memory runs out */

struct function {
	__u8 role;
	__u8 kind;
	__u8 result;
	__u8 flags;
	__s8 size, count, ptr, out; /* argument numbers, or NO_ARG */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_FUNCTIONS);
	__type(key, __u32);
	__type(value, struct function);
} functions SEC(".maps");

/* A field of the context, read at a constant offset: the verifier refuses the
 * computed pointer into which the compiler merges several such reads. */
#define CTX(ctx, field)                              \
	({                                           \
		__u64 ctx_value_ = (ctx)->field;     \
		asm volatile("" : "+r"(ctx_value_)); \
		ctx_value_;                          \
	})

static __always_inline __u64 argument(struct pt_regs *ctx, __s8 n)
{
	switch (n) {
	case 0:
		return CTX(ctx, di);
	case 1:
		return CTX(ctx, si);
	case 2:
		return CTX(ctx, dx);
	case 3:
		return CTX(ctx, cx);
	case 4:
		return CTX(ctx, r8);
	case 5:
		return CTX(ctx, r9);
	}
	return 0;
}

#endif
