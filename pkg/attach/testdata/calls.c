// SPDX-License-Identifier: Apache-2.0

// Calls allocation functions when told to, each call with a size that tells it
// apart. Order on stdin, a line each:
//
//   run N          call every function N times, from the main thread
//   threads N M    the same from M threads started now, N times each; says
//                  "running" when all are
//   parked N       the same from the thread that was started before "ready"
//   fork N         the same in a child, which exits
//   dlopen PATH    load a library with mallocx and dallocx
//   late N         call them N times
//   bench N        N pairs of malloc and free; prints ns a pair
//
// It answers each with a line: "done", or what the order names.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// The functions are called through pointers that the compiler cannot see
// through, so that no call is left out or merged.
static void *(*volatile p_malloc)(size_t) = malloc;
static void *(*volatile p_calloc)(size_t, size_t) = calloc;
static void *(*volatile p_realloc)(void *, size_t) = realloc;
static int (*volatile p_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void *(*volatile p_aligned_alloc)(size_t, size_t) = aligned_alloc;
static void *(*volatile p_memalign)(size_t, size_t) = memalign;
static void *(*volatile p_valloc)(size_t) = valloc;
static void (*volatile p_free)(void *) = free;

// Those that not every libc or allocator has.
typedef void *(*size_fn)(size_t);
typedef void *(*resize_fn)(void *, size_t, size_t);
typedef void (*free_fn)(void *);
typedef void (*free_sized_fn)(void *, size_t);
static size_fn p_pvalloc, p_new, p_new_array;
static resize_fn p_reallocarray;
static free_fn p_cfree, p_delete, p_delete_array;
static free_sized_fn p_delete_sized;

// Those of a library that is loaded later.
static __attribute__((unused)) void *(*p_late)(size_t, int);
static __attribute__((unused)) void (*p_late_free)(void *, int);

#ifndef STATIC
// same_library reports whether a function is defined where malloc is: memory of
// another allocator must not be given to this one's free.
static int same_library(void *function)
{
	Dl_info a, b;

	return function && dladdr(function, &a) && dladdr(dlsym(RTLD_DEFAULT, "malloc"), &b) &&
	       a.dli_fbase == b.dli_fbase;
}
#endif

static void lookup(void)
{
#ifndef STATIC // where all names are bound already
	p_pvalloc = (size_fn)dlsym(RTLD_DEFAULT, "pvalloc");
	if (!same_library(p_pvalloc))
		p_pvalloc = NULL;
	p_reallocarray = (resize_fn)dlsym(RTLD_DEFAULT, "reallocarray");
	p_cfree = (free_fn)dlsym(RTLD_DEFAULT, "cfree");
	p_new = (size_fn)dlsym(RTLD_DEFAULT, "_Znwm");
	p_new_array = (size_fn)dlsym(RTLD_DEFAULT, "_Znam");
	p_delete = (free_fn)dlsym(RTLD_DEFAULT, "_ZdlPv");
	p_delete_array = (free_fn)dlsym(RTLD_DEFAULT, "_ZdaPv");
	p_delete_sized = (free_sized_fn)dlsym(RTLD_DEFAULT, "_ZdlPvm");
#else
	p_reallocarray = reallocarray;
#endif
}

static void round_of_calls(void)
{
	void *p = p_malloc(1001);
	p = p_realloc(p, 1002);
	p_free(p);
	p_free(p_calloc(3, 1003));
	if (p_posix_memalign(&p, 64, 1004) == 0)
		p_free(p);
	p_free(p_aligned_alloc(64, 64 * 16));
	p_free(p_memalign(64, 1006));
	p_free(p_valloc(1007));
	p_free(NULL);
	if (p_pvalloc)
		p_free(p_pvalloc(1008));
	if (p_reallocarray)
		p_free(p_reallocarray(NULL, 3, 1009));
	if (p_cfree)
		p_cfree(p_malloc(1001));
	if (p_new && p_delete && p_delete_sized) {
		p_delete(p_new(1010));
		p_delete_sized(p_new(1010), 1010);
		p_delete_array(p_new_array(1011));
	}
	p = mmap(NULL, 20480, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p = mremap(p, 20480, 28672, MREMAP_MAYMOVE);
	munmap(p, 28672);
}

static void *rounds(void *n)
{
	for (intptr_t i = 0; i < (intptr_t)n; i++)
		round_of_calls();
	return NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static intptr_t parked;

static void *park(void *unused)
{
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!parked)
			pthread_cond_wait(&changed, &lock);
		rounds((void *)parked);
		parked = 0;
		pthread_cond_broadcast(&changed);
	}
	return unused;
}

static void bench(int n)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < n; i++)
		p_free(p_malloc(100));
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("ns %f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
}

static void order(const char *line)
{
	static pthread_t threads[64];
	static __attribute__((unused)) char path[4000];
	int n, m;

	if (sscanf(line, "run %d", &n) == 1) {
		rounds((void *)(intptr_t)n);
	} else if (sscanf(line, "threads %d %d", &n, &m) == 2 && m <= 64) {
		for (int i = 0; i < m; i++)
			pthread_create(&threads[i], NULL, rounds, (void *)(intptr_t)n);
		puts("running");
		for (int i = 0; i < m; i++)
			pthread_join(threads[i], NULL);
	} else if (sscanf(line, "parked %d", &n) == 1) {
		pthread_mutex_lock(&lock);
		parked = n;
		pthread_cond_broadcast(&changed);
		while (parked)
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
	} else if (sscanf(line, "fork %d", &n) == 1) {
		pid_t child = fork();
		if (child == 0) {
			rounds((void *)(intptr_t)n);
			_exit(0);
		}
		waitpid(child, NULL, 0);
#ifndef STATIC
	} else if (sscanf(line, "dlopen %3999s", path) == 1) {
		void *lib = dlopen(path, RTLD_NOW);
		if (!lib) {
			fprintf(stderr, "%s\n", dlerror());
			exit(1);
		}
		p_late = (void *(*)(size_t, int))dlsym(lib, "mallocx");
		p_late_free = (void (*)(void *, int))dlsym(lib, "dallocx");
	} else if (sscanf(line, "late %d", &n) == 1) {
		while (n-- > 0)
			p_late_free(p_late(1012, 0), 0);
#endif
	} else if (sscanf(line, "bench %d", &n) == 1) {
		bench(n);
		return;
	} else {
		fprintf(stderr, "unknown order %s", line);
		exit(2);
	}
	puts("done");
}

int main(void)
{
	static char line[4096], in[4096], out[4096];
	pthread_t thread;

	// No allocation but those that are told.
	setvbuf(stdin, in, _IOLBF, sizeof(in));
	setvbuf(stdout, out, _IOLBF, sizeof(out));
	lookup();
	pthread_create(&thread, NULL, park, NULL);
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		order(line);
	return 0;
}
