// SPDX-License-Identifier: Apache-2.0

/*
 * What the two halves of randops share: randops.c decides what to do and keeps
 * the model, randops_sites.c has the sites.
 */
#ifndef RANDOPS_H
#define RANDOPS_H

#include <stddef.h>

/* clang-format off */
#define SITES                                                                            \
	X(plain_a) X(plain_b) X(plain_c) X(plain_d) X(plain_e) X(plain_f) X(plain_g)     \
	X(deep_3) X(deep_30) X(deep_200)                                                 \
	X(far_a) X(far_b) X(far_c) X(far_d)                                              \
	X(middle_a) X(middle_b) X(middle_c)                                              \
	X(rewrite_a) X(rewrite_b)                                                        \
	X(vla) X(realigned)

#define FUNCTIONS                                                                        \
	X(malloc) X(calloc) X(realloc) X(reallocarray) X(posix_memalign) X(aligned_alloc) \
	X(memalign) X(valloc) X(mmap) X(mremap)
/* clang-format on */

#define X(name) ID_##name,
enum { SITES SITE_COUNT };
#undef X
#define X(name) FN_##name,
enum { FUNCTIONS FUNCTION_COUNT };
#undef X

/* op is one call to be made: what to allocate, and what to resize if anything. */
struct op {
	int function;
	size_t size;
	void *old;
	size_t old_size;
	void *result;
	struct op *second; /* for rewrite_* */
	void **slot;	   /* for rewrite_*: where the return address stands */
};

/* A site makes the call from a stack that has its name in it. */
typedef void step(struct op *);

#define X(name) step name;
SITES
#undef X

/* rewrite makes the call of o as rewrite_a and that of o->second as rewrite_b. */
step rewrite;

/* deep calls f with n frames of its own in between. */
void deep(int n, step *f, struct op *o);

#endif
