// SPDX-License-Identifier: Apache-2.0

/*
 * moverace: two threads hand blocks to each other, one resizes what it gets and
 * frees it, both allocate: the old address of a block that realloc moves is
 * handed out by another thread's malloc before realloc has returned. The protocol
 * is model.h's; 400,000 rounds a thread, of which one in 50 keeps a block.
 */
#define SITES                \
	X(keep, "malloc", 3) \
	X(pass, "malloc", 5)

#define MODEL_DEFINE
#define _GNU_SOURCE

#include <pthread.h>

#include "model.h"

#define ROUNDS 400000
#define QUEUE 1024

static _Atomic(void *) queue[QUEUE];
static pthread_barrier_t barrier;

SITE void keep(size_t n)
{
	void *p = malloc(n);

	KEEP(p);
	allocated(ID_keep, p, n);
}

SITE void *pass(size_t n)
{
	void *p = malloc(n);

	KEEP(p);
	return p;
}

static void *run(void *arg)
{
	uint32_t random = (uint32_t)(uintptr_t)arg;
	long i;

	pthread_barrier_wait(&barrier);
	for (i = 0; i < ROUNDS; i++) {
		void *got;

		random = random * 1664525 + 1013904223;
		got = atomic_exchange(&queue[(random >> 10) % QUEUE], pass(50 + (random >> 20)));
		if (random & 4)
			got = realloc(got, 5000 + (random >> 22));
		free(got);
		if (i % 50 == 0)
			keep(50 + (random >> 20));
	}
	pthread_barrier_wait(&barrier);
	pause(); /* an exit would free its cache once more */
	return NULL;
}

int main(void)
{
	pthread_t threads[2];
	size_t i;

	pthread_barrier_init(&barrier, NULL, 3);
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, run, (void *)(i + 1)) == 0);
	attach();
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	for (i = 0; i < QUEUE; i++)
		free(atomic_load(&queue[i]));
	report();
	return 0;
}
