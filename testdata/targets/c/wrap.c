// SPDX-License-Identifier: Apache-2.0

/*
 * wrap: an interposed allocator layer, as debugging libraries are: calloc is
 * malloc and memset, realloc is malloc, memcpy and free, malloc and free pass
 * through. Preloaded into a target it leaves the target's bytes and counts by
 * site as they are, whichever of the nested calls a tracer names.
 *
 *   gcc -shared -fPIC wrap.c -o libwrap.so; LD_PRELOAD=./libwrap.so allfuncs start
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Looked up when the library is loaded, before there are threads; the loader's
   own early calls are served by the wrapped library through these too. */
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);

__attribute__((constructor)) static void look_up(void)
{
	next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	if (!next_malloc || !next_free)
		abort();
}

void *malloc(size_t n)
{
	void *p;

	if (!next_malloc)
		look_up();
	p = next_malloc(n);
	__asm__ volatile("" : "+r"(p) : : "memory"); /* a call, not a jump */
	return p;
}

void free(void *p)
{
	if (!next_free)
		look_up();
	next_free(p);
	__asm__ volatile("" : : : "memory");
}

void *calloc(size_t count, size_t size)
{
	size_t n;
	void *p;

	if (__builtin_mul_overflow(count, size, &n)) {
		errno = ENOMEM;
		return NULL;
	}
	p = malloc(n);
	__asm__ volatile("" : "+r"(p)); /* else GCC makes the two a calloc */
	return p ? memset(p, 0, n) : NULL;
}

void *realloc(void *old, size_t n)
{
	size_t had;
	void *p;

	if (!old)
		return malloc(n);
	if (n == 0) {
		free(old);
		return NULL;
	}
	p = malloc(n);
	if (!p)
		return NULL;
	had = malloc_usable_size(old);
	memcpy(p, old, had < n ? had : n);
	free(old);
	return p;
}
