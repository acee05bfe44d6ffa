// SPDX-License-Identifier: Apache-2.0

/*
 * randops: a random, seeded run over all allocation functions, with a naive
 * model of what is left.
 *
 *   randops [SEED [OPERATIONS [THREADS]]]     (1, 1000000 and 2)
 *
 * Each thread keeps a table of what it holds: where it was allocated, by which
 * function, how large. Threads hand allocations to each other, so many are freed
 * by a thread other than their own. A site is one function, of which every stack
 * has exactly one; below it the stacks are mostly alike, to challenge a tracer
 * that reuses what it knows of the last one:
 *
 *   plain_*    near the leaf
 *   deep_*     3, 30 and 200 frames above it
 *   far_*      alike but for this one frame, 100 frames above the leaf
 *   middle_*   alike but for this one frame, 50 frames above the leaf and 50
 *              below a common rest
 *   rewrite_*  two allocations with nothing returned in between: before the
 *              second, a return address 20 frames up is overwritten (x86-64)
 *   vla, realigned   frames whose size or alignment only the frame itself knows
 *
 * Sources: randops.c, randops_sites.c. It says READY, waits, works, says
 * "SITES [{site, function, objects, bytes, allocs, alloc_bytes}, …]" with the
 * pairs that occurred, and DONE. What a seed does is the same in every run but
 * for what threads hand each other.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "randops.h"
#include "talk.h"

#define X(name) #name,
static const char *const site_names[] = { SITES };
static const char *const function_names[] = { FUNCTIONS };
#undef X

#define PAGE ((size_t)4096)
#define MAX_HELD 2048  /* heap allocations of a thread */
#define MAX_MAPPED 128 /* mappings of a thread */
#define MAX_THREADS 64
#define SHELF 64 /* allocations between threads */

struct held {
	void *p;
	size_t size;
	int site, function;
};

struct thread {
	pthread_t id;
	uint64_t random;
	long operations;
	struct held held[MAX_HELD], mapped[MAX_MAPPED];
	int held_count, mapped_count;
	int last_site;
	long allocs[SITE_COUNT][FUNCTION_COUNT], alloc_bytes[SITE_COUNT][FUNCTION_COUNT];
};

static struct thread threads[MAX_THREADS];
static pthread_barrier_t barrier;

static struct held shelf[SHELF];
static atomic_flag shelf_lock = ATOMIC_FLAG_INIT;

static uint64_t pick(struct thread *t, uint64_t below)
{
	t->random ^= t->random << 13; /* xorshift64 */
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return (t->random >> 11) % below;
}

/* made enters a finished call in the model. */
static struct held made(struct thread *t, int site, const struct op *o)
{
	t->allocs[site][o->function]++;
	t->alloc_bytes[site][o->function] += (long)o->size;
	return (struct held){ o->result, o->size, site, o->function };
}

static size_t heap_size(struct thread *t)
{
	switch (pick(t, 256)) {
	case 0:
		return 0;
	case 1:
		return 100000 + pick(t, 1000000); /* served by mmap */
	case 2 ... 15:
		return 1024 + pick(t, 30000);
	default:
		return 1 + pick(t, 512);
	}
}

/* go calls through a site. The last one is likely to come again. */
static int go(struct thread *t, struct op *o)
{
	static step *const sites[] = {
		plain_a, plain_b, plain_c,  plain_d, plain_e, plain_f, plain_g,
		deep_3,	 deep_30, deep_200, far_a,   far_b,   far_c,   far_d,
	};
	static step *const middles[] = { middle_a, middle_b, middle_c };
	const int site_count = sizeof(sites) / sizeof(sites[0]);

	if (pick(t, 4) == 0) {
		do
			t->last_site = (int)pick(t, SITE_COUNT);
		while (t->last_site == ID_rewrite_a || t->last_site == ID_rewrite_b);
	}
	if (t->last_site < site_count)
		sites[t->last_site](o);
	else if (t->last_site <= ID_middle_c)
		deep(50, middles[t->last_site - ID_middle_a], o);
	else if (t->last_site == ID_vla)
		vla(o);
	else
		realigned(o);
	return t->last_site;
}

static void allocate(struct thread *t)
{
	static const int fresh[] = {
		FN_malloc,	  FN_malloc,   FN_malloc,  FN_malloc,	    FN_malloc,
		FN_calloc,	  FN_calloc,   FN_realloc, FN_reallocarray, FN_posix_memalign,
		FN_aligned_alloc, FN_memalign, FN_valloc,
	};
	struct op o = { .function = fresh[pick(t, sizeof(fresh) / sizeof(fresh[0]))] };

	o.size = heap_size(t);
	if (o.size == 0 && (o.function == FN_realloc || o.function == FN_reallocarray))
		o.size = 1;
	if (o.function == FN_aligned_alloc)
		o.size = (o.size + 63) & ~(size_t)63; /* C11 demands a multiple */
	t->held[t->held_count++] = made(t, go(t, &o), &o);
}

/* allocate_rewriting makes the two calls of rewrite_a and rewrite_b. */
static void allocate_rewriting(struct thread *t)
{
	struct op second = { .function = FN_malloc, .size = heap_size(t) };
	struct op first = { .function = FN_malloc, .size = heap_size(t), .second = &second };

	rewrite(&first);
	t->held[t->held_count++] = made(t, ID_rewrite_a, &first);
	t->held[t->held_count++] = made(t, ID_rewrite_b, &second);
}

static struct held take(struct held *table, int *count, int i)
{
	struct held h = table[i];

	table[i] = table[--*count];
	return h;
}

static void resize(struct thread *t)
{
	struct held *h = &t->held[pick(t, (uint64_t)t->held_count)];
	struct op o = { .function = pick(t, 4) ? FN_realloc : FN_reallocarray,
			.size = heap_size(t) + 1,
			.old = h->p };

	*h = made(t, go(t, &o), &o);
}

static void map(struct thread *t)
{
	struct op o = { .function = FN_mmap, .size = (1 + pick(t, 32)) * PAGE };
	struct held *h;
	size_t cut;

	if (t->mapped_count < MAX_MAPPED && pick(t, 2)) {
		t->mapped[t->mapped_count++] = made(t, go(t, &o), &o);
		return;
	}
	if (t->mapped_count == 0)
		return;
	h = &t->mapped[pick(t, (uint64_t)t->mapped_count)];
	switch (pick(t, 4)) {
	case 0: /* a resize, maybe a move */
		o.function = FN_mremap;
		o.old = h->p;
		o.old_size = h->size;
		*h = made(t, go(t, &o), &o);
		return;
	case 1: /* a part, from the head or the tail */
		cut = pick(t, h->size / PAGE) * PAGE;
		if (cut == 0)
			return;
		h->size -= cut;
		if (pick(t, 2)) {
			CHECK(munmap((char *)h->p + h->size, cut) == 0);
		} else {
			CHECK(munmap(h->p, cut) == 0);
			h->p = (char *)h->p + cut;
		}
		return;
	default:
		CHECK(munmap(h->p, h->size) == 0);
		take(t->mapped, &t->mapped_count, (int)(h - t->mapped));
	}
}

/* exchange puts an allocation on the shelf and takes what another thread, or
   this one, left there. */
static void exchange(struct thread *t)
{
	struct held *mine = &t->held[pick(t, (uint64_t)t->held_count)];
	struct held *there = &shelf[pick(t, SHELF)];
	struct held got;

	while (atomic_flag_test_and_set(&shelf_lock))
		;
	got = *there;
	*there = *mine;
	atomic_flag_clear(&shelf_lock);
	if (got.p)
		*mine = got;
	else
		*mine = t->held[--t->held_count];
}

static void drop(struct thread *t)
{
	free(take(t->held, &t->held_count, (int)pick(t, (uint64_t)t->held_count)).p);
}

static void operate(struct thread *t)
{
	uint64_t what = pick(t, 1000);

	if (t->held_count < 16 || (what < 480 && t->held_count < MAX_HELD - 2))
		what < 20 ? allocate_rewriting(t) : allocate(t);
	else if (what < 900)
		drop(t);
	else if (what < 960)
		resize(t);
	else if (what < 980)
		exchange(t);
	else
		map(t);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	long i;

	pthread_barrier_wait(&barrier);
	for (i = 0; i < t->operations; i++)
		operate(t);
	pthread_barrier_wait(&barrier);
	pause(); /* an exit would free its cache once more */
	return NULL;
}

struct sum {
	long objects, bytes, allocs, alloc_bytes;
};

static void add(struct sum sums[SITE_COUNT][FUNCTION_COUNT], const struct held *h, int n)
{
	for (; n > 0; n--, h++) {
		if (!h->p)
			continue; /* an empty place of the shelf */
		sums[h->site][h->function].objects++;
		sums[h->site][h->function].bytes += (long)h->size;
	}
}

static void print_sums(int thread_count)
{
	static struct sum sums[SITE_COUNT][FUNCTION_COUNT];
	const char *comma = "";
	int i, s, f;

	add(sums, shelf, SHELF);
	for (i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];

		add(sums, t->held, t->held_count);
		add(sums, t->mapped, t->mapped_count);
		for (s = 0; s < SITE_COUNT; s++)
			for (f = 0; f < FUNCTION_COUNT; f++) {
				sums[s][f].allocs += t->allocs[s][f];
				sums[s][f].alloc_bytes += t->alloc_bytes[s][f];
			}
	}
	say("SITES [");
	for (s = 0; s < SITE_COUNT; s++)
		for (f = 0; f < FUNCTION_COUNT; f++) {
			const struct sum *x = &sums[s][f];

			if (!x->allocs)
				continue;
			say("%s{\"site\":\"%s\",\"function\":\"%s\",\"objects\":%ld,\"bytes\":%ld,"
			    "\"allocs\":%ld,\"alloc_bytes\":%ld}",
			    comma, site_names[s], function_names[f], x->objects, x->bytes,
			    x->allocs, x->alloc_bytes);
			comma = ",";
		}
	say("]\n");
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	long operations = argc > 2 ? atol(argv[2]) : 1000000;
	int i, count = argc > 3 ? atoi(argv[3]) : 2;

	CHECK(count > 0 && count <= MAX_THREADS);
	pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
	for (i = 0; i < count; i++) {
		struct thread *t = &threads[i];

		/* Never 0, which xorshift keeps. */
		t->random = (seed * 1000003 + (uint64_t)i) * 2 + 1;
		t->operations = operations / count;
		CHECK(pthread_create(&t->id, NULL, run, t) == 0);
	}
	ready();
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	print_sums(count);
	done();
	return 0;
}
