// SPDX-License-Identifier: Apache-2.0

/*
 * The functions of allfuncs that map address space.
 */
#include "allfuncs.h"

#include <fcntl.h>

static const size_t page = 4096;

/* MAP(name, at, n, flags) is the mmap of site name. */
#define MAP(name, at, n, flags, fd)                                             \
	({                                                                      \
		void *m_ = mmap(at, n, PROT_READ | PROT_WRITE, (flags), fd, 0); \
		KEEP(m_);                                                       \
		m_ == MAP_FAILED ? NULL : m_;                                   \
	})
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

#define MAP_SITE(name, at, flags)                                            \
	SITE struct ref name(void *at_)                                      \
	{                                                                    \
		size_t n = SIZE(name);                                       \
		(void)at_;                                                   \
		return allocated(ID_##name, MAP(name, at, n, flags, -1), n); \
	}

MAP_SITE(map_private, NULL, ANONYMOUS)
MAP_SITE(map_shared, NULL, MAP_SHARED | MAP_ANONYMOUS)
MAP_SITE(map_dropped, NULL, ANONYMOUS)
MAP_SITE(map_cut, NULL, ANONYMOUS)
MAP_SITE(map_under, NULL, ANONYMOUS)
MAP_SITE(map_to_remap, NULL, ANONYMOUS)

SITE struct ref map_64(void)
{
	size_t n = SIZE(map_64);
	void *p = mmap64(NULL, n, PROT_READ, ANONYMOUS, -1, 0);

	KEEP(p);
	return allocated(ID_map_64, p == MAP_FAILED ? NULL : p, n);
}

SITE void map_failing(void)
{
	CHECK(!allocated(ID_map_failing, MAP(map_failing, NULL, hidden(0), ANONYMOUS, -1), 0).p);
}

/* Not anonymous, so no allocation, and in no count. */
SITE void map_file(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	CHECK(fd >= 0);
	CHECK(MAP(map_file, NULL, SIZE(map_file), MAP_PRIVATE, fd));
	close(fd);
}

/* Replaces n bytes of another mapping. */
SITE struct ref map_over(void *at, size_t n)
{
	return allocated(ID_map_over, MAP(map_over, at, n, ANONYMOUS | MAP_FIXED, -1), n);
}

/* unmapped records that bytes of a mapping, not all, are gone. */
static void unmapped(struct ref *r, size_t bytes)
{
	if (r->seen)
		counts[r->site].bytes -= (long)bytes;
	r->size -= bytes;
}

SITE void unmap(struct ref *r, size_t offset, size_t bytes)
{
	CHECK(munmap((char *)r->p + offset, bytes) == 0);
	if (bytes == r->size)
		released(r);
	else
		unmapped(r, bytes);
}

#define REMAP_SITE(name)                                                \
	SITE struct ref name(struct ref *old)                           \
	{                                                               \
		size_t n = SIZE(name);                                  \
		void *p = mremap(old->p, old->size, n, MREMAP_MAYMOVE); \
		KEEP(p);                                                \
		if (p == MAP_FAILED)                                    \
			return allocated(ID_##name, NULL, n);           \
		released(old);                                          \
		return allocated(ID_##name, p, n);                      \
	}

REMAP_SITE(remap_grow)
REMAP_SITE(remap_shrink)
REMAP_SITE(remap_failing)

void maps(void)
{
	struct ref r, over, nothing = { (void *)(64 * 4096), 4096, ID_map_private, false };

	map_private(NULL);
	map_shared(NULL);
	map_64();
	map_file();
	map_failing();
	r = map_dropped(NULL);
	unmap(&r, 0, r.size);

	r = map_cut(NULL);
	unmap(&r, 0, 2 * page); /* head */
	r.p = (char *)r.p + 2 * page;
	unmap(&r, r.size - 3 * page, 3 * page); /* tail */
	unmap(&r, 5 * page, 4 * page);		/* a hole: two pieces remain */

	/* The upper part of one mapping is replaced by another, then one munmap
	   takes the last two pages of the first and the first three of the second. */
	r = map_under(NULL);
	over = map_over((char *)r.p + 10 * page, r.size - 10 * page);
	unmapped(&r, over.size);
	CHECK(munmap((char *)r.p + 8 * page, 5 * page) == 0);
	unmapped(&r, 2 * page);
	unmapped(&over, 3 * page);

	r = map_to_remap(NULL);
	r = remap_grow(&r);
	r = remap_shrink(&r); /* kept */
	CHECK(!remap_failing(&nothing).p);
}
