// SPDX-License-Identifier: Apache-2.0

/*
 * What a target knows of its own memory, and how it talks to a test.
 *
 * A site is a C function of its own, so that its name stands in the stack of
 * whatever it allocates. SITES, defined by the target before it includes this
 * file, lists them as X(name, function, unit): the allocation function that the
 * site calls, and the unit of its sizes. SIZE(name) is the unit times the site's
 * number, so no two sites of a unit allocate the same size.
 *
 * The target says READY and its pid, waits for a line, works, and says
 *
 *   SITES [{"site":…,"function":…,"objects":…,"bytes":…,"allocs":…,"alloc_bytes":…,"failed":…}, …]
 *   TOTALS {"allocations":…,"frees":…,"frees_unmatched":…,"failed_calls":…,"thread_exits":…}
 *   DONE
 *
 * and lives on until its stdin ends. Objects and bytes are outstanding; all
 * numbers count from READY on. Memory from before it is "unmatched" when freed.
 * A thread's exit lets glibc free what its cache holds once more, so the number
 * of unmatched frees is a lower bound if threads exited.
 *
 * Nothing here allocates after READY, so that the sites are all there is.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdatomic.h>

#include "talk.h"

enum {
#define X(name, function, unit) ID_##name,
	SITES
#undef X
		SITE_COUNT
};

struct count {
	const char *site, *function;
	size_t size;
	atomic_long objects, bytes, allocs, alloc_bytes, failed;
};

struct totals {
	atomic_long frees, frees_unmatched, thread_exits;
};

extern struct count counts[SITE_COUNT];
extern struct totals totals;
extern atomic_bool attached; /* READY was answered */

#ifdef MODEL_DEFINE /* by one source of the target */
struct count counts[SITE_COUNT] = {
#define X(name, function, unit) \
	{ #name, function, (unit) * (size_t)(ID_##name + 1), 0, 0, 0, 0, 0 },
	SITES
#undef X
};
struct totals totals;
atomic_bool attached;
#endif

#define SIZE(name) (counts[ID_##name].size)

/* ref is an allocation: where it came from and whether the tracer saw it. */
struct ref {
	void *p;
	size_t size;
	int site;
	bool seen;
};

/* allocated records the result of an allocation call made by a site. */
static inline struct ref allocated(int site, void *p, size_t size)
{
	struct ref r = { p, size, site, attached };
	struct count *c = &counts[site];

	if (!r.seen)
		return r;
	if (!p) {
		c->failed++;
		return r;
	}
	c->objects++;
	c->bytes += (long)size;
	c->allocs++;
	c->alloc_bytes += (long)size;
	return r;
}

/* released records that an allocation was taken back. */
static inline void released(struct ref *r)
{
	if (r->p && r->seen) {
		counts[r->site].objects--;
		counts[r->site].bytes -= (long)r->size;
		totals.frees++;
	} else if (r->p && attached) {
		totals.frees_unmatched++;
	}
	r->p = NULL;
}

/* attach says READY and waits; from then on the tracer sees all. */
static inline void attach(void)
{
	ready();
	attached = true;
}

/* report prints what is outstanding and waits for stdin's end. */
static inline void report(void)
{
	long allocs = 0, failed = 0;
	int i;

	say("SITES [");
	for (i = 0; i < SITE_COUNT; i++) {
		struct count *c = &counts[i];

		allocs += c->allocs;
		failed += c->failed;
		say("%s{\"site\":\"%s\",\"function\":\"%s\",\"objects\":%ld,\"bytes\":%ld,"
		    "\"allocs\":%ld,\"alloc_bytes\":%ld,\"failed\":%ld}",
		    i ? "," : "", c->site, c->function, c->objects, c->bytes, c->allocs,
		    c->alloc_bytes, c->failed);
	}
	say("]\n");
	say("TOTALS "
	    "{\"allocations\":%ld,\"frees\":%ld,\"frees_unmatched\":%ld,\"failed_calls\":%ld,"
	    "\"thread_exits\":%ld}\n",
	    allocs, totals.frees, totals.frees_unmatched, failed, totals.thread_exits);
	done();
}

#endif
