// SPDX-License-Identifier: Apache-2.0

/*
 * deep: pairs of malloc and free at a fixed stack depth, timed.
 *
 *   deep DEPTH [THREADS [SIZE]]     (1 thread, 64 bytes)
 *
 * It says READY; then each line of stdin is a number of pairs, which every
 * thread makes with DEPTH frames of recursion above the call, and is answered
 * with "PAIR ns", the mean time of a pair, whereupon it can be told again: a
 * benchmark measures one process under one tool after the other. With -g, but
 * built both with and without -fomit-frame-pointer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "talk.h"

#define MAX_THREADS 64

static int depth, thread_count = 1;
static size_t size = 64;
static long pairs;
static pthread_barrier_t barrier;

SITE void pair(void)
{
	long i;

	for (i = 0; i < pairs; i++) {
		void *p = malloc(size);

		KEEP(p);
		free(p);
	}
}

SITE void deeper(int n)
{
	if (n == 0)
		pair();
	else
		deeper(n - 1);
	KEEP(n);
}

static void *run(void *arg)
{
	(void)arg;
	for (;;) {
		pthread_barrier_wait(&barrier);
		deeper(depth);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char line[64];
	double start;
	int i;

	CHECK(argc > 1);
	depth = atoi(argv[1]);
	if (argc > 2)
		thread_count = atoi(argv[2]);
	if (argc > 3)
		size = (size_t)atol(argv[3]);
	CHECK(depth >= 0 && thread_count > 0 && thread_count <= MAX_THREADS);
	pthread_barrier_init(&barrier, NULL, (unsigned)thread_count + 1);
	for (i = 0; i < thread_count; i++)
		CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	say("READY %d\n", getpid());
	while (read_line(line, sizeof(line))) {
		pairs = atol(line);
		CHECK(pairs > 0);
		start = now();
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		say("PAIR %.1f\n", (now() - start) / (double)pairs);
	}
	return 0;
}
