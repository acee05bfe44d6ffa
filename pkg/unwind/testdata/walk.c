// SPDX-License-Identifier: Apache-2.0
//
// Prints its own stack as glibc unwinds it, from inside a signal handler that
// interrupted a thread under a callback of qsort under frames of every size,
// then waits in a read to be unwound from outside. Prints "tid N", addresses
// "at 0x...", "ready".
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int raised;

__attribute__((noinline)) static void wait_here(void)
{
	void *at[200];
	char c;
	int n = backtrace(at, 200);

	printf("tid %d\n", gettid());
	for (int i = 0; i < n; i++)
		printf("at %p\n", at[i]);
	puts("ready");
	fflush(stdout);
	if (read(0, &c, 1) < 0)
		exit(1);
}

static void handler(int sig)
{
	wait_here();
	raised = sig;
}

__attribute__((noinline)) static int compare(const void *a, const void *b)
{
	if (!raised)
		raise(SIGUSR1);
	return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) static int sort(void)
{
	int v[3] = { 3, 1, 2 };

	qsort(v, 3, sizeof(v[0]), compare);
	return v[0];
}

/* A frame whose size is known at run time only is found by its rbp. */
__attribute__((noinline)) static int deep(int n)
{
	char *pad = alloca(n * 24 + 1);

	memset(pad, n, n * 24 + 1);
	return (n ? deep(n - 1) : sort()) + pad[n];
}

static void *thread(void *arg)
{
	printf("sum %d\n", deep(*(int *)arg));
	return NULL;
}

int main(void)
{
	int n = 30;
	pthread_t t;

	signal(SIGUSR1, handler);
	if (pthread_create(&t, NULL, thread, &n) || pthread_join(t, NULL))
		return 1;
	return !raised;
}
