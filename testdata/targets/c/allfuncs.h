// SPDX-License-Identifier: Apache-2.0

/*
 * What the sources of allfuncs share: the sites, and how a call is made.
 */
#ifndef ALLFUNCS_H
#define ALLFUNCS_H

#define _GNU_SOURCE
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>

#define SMALL 131
#define LARGE 200003 /* from the second site on above glibc's threshold for mmap */
#define PAGES 4096

/* A site that resizes to something smaller stands before the one it shrinks. */
#define SITES                                              \
	X(realloc_shrink, "realloc", SMALL)                \
	X(remap_shrink, "mremap", PAGES)                   \
	X(malloc_small, "malloc", SMALL)                   \
	X(malloc_large, "malloc", LARGE)                   \
	X(malloc_zero, "malloc", 0)                        \
	X(malloc_failing, "malloc", SMALL)                 \
	X(malloc_in_strdup, "malloc", SMALL)               \
	X(calloc_small, "calloc", SMALL)                   \
	X(calloc_large, "calloc", LARGE)                   \
	X(calloc_overflow, "calloc", SMALL)                \
	X(realloc_grow, "realloc", SMALL)                  \
	X(realloc_move, "realloc", SMALL)                  \
	X(realloc_large, "realloc", LARGE)                 \
	X(realloc_null, "realloc", SMALL)                  \
	X(realloc_zero, "realloc", 0)                      \
	X(realloc_failing, "realloc", SMALL)               \
	X(reallocarray_null, "reallocarray", SMALL)        \
	X(reallocarray_grow, "reallocarray", SMALL)        \
	X(reallocarray_overflow, "reallocarray", 1)        \
	X(posix_memalign_64, "posix_memalign", SMALL)      \
	X(posix_memalign_page, "posix_memalign", LARGE)    \
	X(posix_memalign_failing, "posix_memalign", SMALL) \
	X(aligned_alloc_64, "aligned_alloc", 64)           \
	X(memalign_256, "memalign", SMALL)                 \
	X(valloc_any, "valloc", SMALL)                     \
	X(pvalloc_any, "pvalloc", PAGES)                   \
	X(map_private, "mmap", PAGES)                      \
	X(map_shared, "mmap", PAGES)                       \
	X(map_64, "mmap", PAGES)                           \
	X(map_file, "mmap", PAGES)                         \
	X(map_failing, "mmap", PAGES)                      \
	X(map_dropped, "mmap", PAGES)                      \
	X(map_cut, "mmap", PAGES)                          \
	X(map_under, "mmap", PAGES)                        \
	X(map_over, "mmap", 0)                             \
	X(map_to_remap, "mmap", PAGES)                     \
	X(remap_grow, "mremap", PAGES)                     \
	X(remap_failing, "mremap", PAGES)                  \
	X(reuse_a, "malloc", SMALL)                        \
	X(reuse_b, "malloc", SMALL)                        \
	X(handler_raised, "malloc", SMALL)                 \
	X(handler_timer, "calloc", SMALL)                  \
	X(thread_late, "malloc", SMALL)                    \
	X(parent_kept, "malloc", SMALL)                    \
	X(child_malloc, "malloc", SMALL)
#include "model.h"

/* Calls of this thread inside the allocator; the timer's handler looks. */
extern __thread volatile sig_atomic_t inside;

#define CALL(call)                   \
	({                           \
		__typeof__(call) p_; \
		inside++;            \
		p_ = (call);         \
		KEEP(p_);            \
		inside--;            \
		p_;                  \
	})

/* Hides a number from the compiler's warnings about absurd sizes. */
static inline size_t hidden(size_t n)
{
	KEEP(n);
	return n;
}

/* HEAP(name, call) defines site name, which makes an allocation of n bytes. */
#define HEAP(name, call)                           \
	SITE struct ref name(void)                 \
	{                                          \
		size_t n = hidden(SIZE(name));     \
		void *p = CALL(call);              \
		return allocated(ID_##name, p, n); \
	}

/* Sites that several sources use. */
struct ref malloc_small(void);
struct ref malloc_large(void);
struct ref calloc_small(void);
struct ref realloc_null(void);
struct ref posix_memalign_64(void);
struct ref memalign_256(void);
struct ref realloc_grow(struct ref *old);
struct ref realloc_failing(struct ref *old);
void realloc_zero(struct ref *old);
void drop(struct ref *r); /* frees */

void find_pvalloc(void); /* once, first */

/* The steps of a round. Each keeps some of what it allocates. */
void heap(void);
void failures(void);
void reallocs(void);
void reuse(void);
void maps(void);

#endif
