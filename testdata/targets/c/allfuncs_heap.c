// SPDX-License-Identifier: Apache-2.0

/*
 * The heap functions of allfuncs, which see.
 */
#include "allfuncs.h"

#include <dlfcn.h>

/* pvalloc, if the allocator in use has one: jemalloc and musl do not, and one of
   another allocator must not be mixed with this one's free. */
static void *(*own_pvalloc)(size_t);

void find_pvalloc(void)
{
	void *f = dlsym(RTLD_DEFAULT, "pvalloc");
	Dl_info of_malloc, of_f;

	if (f && dladdr(dlsym(RTLD_DEFAULT, "malloc"), &of_malloc) && dladdr(f, &of_f) &&
	    of_malloc.dli_fbase == of_f.dli_fbase)
		own_pvalloc = (void *(*)(size_t))f;
	else
		counts[ID_pvalloc_any].function = "valloc";
}

HEAP(malloc_small, malloc(n))
HEAP(malloc_large, malloc(n))
HEAP(malloc_zero, malloc(n))
HEAP(malloc_failing, malloc(n + PTRDIFF_MAX))
HEAP(calloc_small, calloc(1, n))
HEAP(calloc_large, calloc(n, 1))
HEAP(calloc_overflow, calloc(n, SIZE_MAX / 2))
HEAP(realloc_null, realloc(NULL, n))
HEAP(reallocarray_null, reallocarray(NULL, n, 1))
HEAP(aligned_alloc_64, aligned_alloc(64, n))
HEAP(memalign_256, memalign(256, n))
HEAP(valloc_any, valloc(n))
HEAP(pvalloc_any, own_pvalloc ? own_pvalloc(n) : valloc(n))
HEAP(reuse_a, malloc(n))

/* The size of its twin, so that it gets the address which that gave back. */
SITE struct ref reuse_b(void)
{
	size_t n = hidden(SIZE(reuse_a));

	return allocated(ID_reuse_b, CALL(malloc(n)), n);
}

/* The C library allocates for the caller. */
SITE struct ref malloc_in_strdup(void)
{
	char s[SMALL * SITE_COUNT];
	size_t n = SIZE(malloc_in_strdup);

	memset(s, 'x', n - 1);
	s[n - 1] = 0;
	return allocated(ID_malloc_in_strdup, CALL(strdup(s)), n);
}

__attribute__((always_inline)) static inline struct ref memaligned(int site, size_t align, size_t n)
{
	void *p = (void *)1; /* must not be taken for the result of a failed call */
	int status = CALL(posix_memalign(&p, align, n));

	return allocated(site, status ? NULL : p, n);
}

/* MEMALIGN(name, align, size) defines a site; memaligned is a part of it. */
#define MEMALIGN(name, align, size)                        \
	SITE struct ref name(void)                         \
	{                                                  \
		size_t n = hidden(SIZE(name));             \
		return memaligned(ID_##name, align, size); \
	}

MEMALIGN(posix_memalign_64, 64, n)
MEMALIGN(posix_memalign_page, 4096, n)

SITE void posix_memalign_failing(void)
{
	memaligned(ID_posix_memalign_failing, hidden(24), 100);		    /* no power of two */
	memaligned(ID_posix_memalign_failing, 64, hidden(PTRDIFF_MAX) + 1); /* too large */
}

/* REALLOC(name, call) defines site name, which resizes old to n bytes. */
#define REALLOC(name, call)                        \
	SITE struct ref name(struct ref *old)      \
	{                                          \
		size_t n = hidden(SIZE(name));     \
		void *p = CALL(call);              \
		if (p)                             \
			released(old);             \
		return allocated(ID_##name, p, n); \
	}

REALLOC(realloc_grow, realloc(old->p, n))
REALLOC(realloc_shrink, realloc(old->p, n))
REALLOC(realloc_move, realloc(old->p, n))
REALLOC(realloc_large, realloc(old->p, n))
REALLOC(realloc_failing, realloc(old->p, n + PTRDIFF_MAX))
REALLOC(reallocarray_grow, reallocarray(old->p, n, 1))
REALLOC(reallocarray_overflow, reallocarray(old->p, n, SIZE_MAX / 2))

/* glibc frees and returns NULL; others return an object of no bytes. */
SITE void realloc_zero(struct ref *old)
{
	void *p = CALL(realloc(old->p, hidden(0)));

	released(old);
	if (p)
		allocated(ID_realloc_zero, p, 0);
}

SITE void drop(struct ref *r)
{
	void *p = r->p;

	/* Before the call: afterwards another thread may own the address. */
	released(r);
	inside++;
	free(p);
	inside--;
}

void heap(void)
{
	struct ref (*const sites[])(void) = {
		malloc_small,	     malloc_large,     malloc_zero,	  calloc_small,
		calloc_large,	     realloc_null,     reallocarray_null, posix_memalign_64,
		posix_memalign_page, aligned_alloc_64, memalign_256,	  valloc_any,
		pvalloc_any,	     malloc_in_strdup,
	};
	size_t i;

	for (i = 0; i < sizeof(sites) / sizeof(sites[0]); i++) {
		struct ref a = sites[i](), b = sites[i]();

		CHECK(a.p && b.p);
		drop(&a); /* b is kept */
	}
}

void failures(void)
{
	struct ref r = malloc_small();
	struct ref none = { 0 };

	CHECK(!malloc_failing().p);
	CHECK(!calloc_overflow().p);
	CHECK(!realloc_failing(&r).p && r.p); /* r is as it was */
	CHECK(!reallocarray_overflow(&r).p && r.p);
	posix_memalign_failing();
	drop(&r);
	drop(&none);
}

void reallocs(void)
{
	struct ref r, blocker;

	r = malloc_small();
	r = realloc_grow(&r);
	r = realloc_shrink(&r); /* kept */

	r = calloc_small();
	blocker = malloc_small();
	r = realloc_move(&r);
	drop(&blocker);
	r = reallocarray_grow(&r); /* kept */

	r = malloc_large();
	r = realloc_large(&r); /* kept; glibc uses mremap */
	r = realloc_null();
	realloc_zero(&r);
}

void reuse(void)
{
	struct ref r;
	int i;

	for (i = 0; i < 10; i++) {
		r = reuse_a();
		drop(&r);
		r = reuse_b();
		drop(&r);
	}
	reuse_b(); /* kept */
}
