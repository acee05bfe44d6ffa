// SPDX-License-Identifier: Apache-2.0

/*
 * bumpalloc: an allocator under the name of a known one, so that a tracer
 * probes it, whose every function a signal handler may call or leave by
 * longjmp, also in the middle of itself: it only ever bumps a pointer.
 *
 *   gcc -shared -fPIC -Wl,-soname,libmimalloc.so.2 bumpalloc.c -o libmimalloc.so.2
 *
 * bump_inside, if set by the program, is called once inside the next malloc,
 * after the block is taken and before malloc returns; the program raises its
 * signal there. calloc and realloc call malloc through the PLT, so that a nested
 * call for the same memory and one for memory of its own can be told apart only
 * by what they return.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA ((size_t)1 << 30) /* address space only; nothing is reused */

struct header {
	size_t size, pad;
};

void (*bump_inside)(void);

static char *arena;
static atomic_size_t used;

__attribute__((constructor)) static void reserve(void)
{
	if (arena)
		return;
	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		__builtin_trap();
}

static void *take(size_t align, size_t n)
{
	size_t need = sizeof(struct header) + n + align;
	uintptr_t p;

	reserve(); /* the loader calls before our constructor, and has no threads */
	if (n > ARENA / 4 || atomic_load(&used) + need > ARENA) {
		errno = ENOMEM;
		return NULL;
	}
	p = (uintptr_t)arena + atomic_fetch_add(&used, need) + sizeof(struct header);
	p = (p + align - 1) & ~(uintptr_t)(align - 1);
	((struct header *)p - 1)->size = n;
	return (void *)p;
}

void *malloc(size_t n)
{
	void *p = take(16, n);
	void (*f)(void) = bump_inside;

	if (f) {
		bump_inside = NULL;
		f();
	}
	return p;
}

void free(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

void *calloc(size_t count, size_t size)
{
	size_t n;
	void *p;

	if (__builtin_mul_overflow(count, size, &n)) {
		errno = ENOMEM;
		return NULL;
	}
	p = malloc(n); /* never used before, so zero */
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
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
	had = ((struct header *)old - 1)->size;
	memcpy(p, old, had < n ? had : n);
	free(old);
	return p;
}

void *aligned_alloc(size_t align, size_t n)
{
	return take(align < 16 ? 16 : align, n);
}

void *memalign(size_t align, size_t n)
{
	return aligned_alloc(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p;

	if (align < sizeof(void *) || (align & (align - 1)))
		return EINVAL;
	p = aligned_alloc(align, n);
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}
