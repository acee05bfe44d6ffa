// SPDX-License-Identifier: Apache-2.0

// A process to look at: it does what its first argument says, prints "ready"
// and waits for lines on its standard input.

#ifdef FREESTANDING

// Needs no headers and no C library, so that it can be built with -m32 on a
// machine without the 32-bit ones: write "ready", then pause forever.
static int call(int number, long a, long b, long c)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
}

void _start(void)
{
	call(4, 1, (long)"ready\n", 6);
	for (;;)
		call(29, 0, 0, 0);
}

#else

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

static void hear(void)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		_exit(0);
}

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void *idle(void *barrier)
{
	pthread_barrier_wait(barrier);
	for (;;)
		pause();
	return NULL;
}

static void threads(int count)
{
	static pthread_barrier_t barrier;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, count + 1);
	for (int i = 0; i < count; i++)
		pthread_create(&thread, NULL, idle, &barrier);
	pthread_barrier_wait(&barrier);
}

// island maps three pages filled with a pattern, of which the last cannot be
// read, and prints their address.
static void island(void)
{
	long page = sysconf(_SC_PAGESIZE);
	unsigned char *p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (long i = 0; i < 3 * page; i++)
		p[i] = i % 251;
	mprotect(p + 2 * page, page, PROT_NONE);
	printf("island %lx\n", (unsigned long)p);
}

static void map(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		fail(path);
	close(fd);
}

static void map_memfd(void)
{
	int fd = memfd_create("a name", 0);

	if (fd < 0 || write(fd, "memfd content", 13) != 13 ||
	    mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		fail("memfd");
	close(fd);
}

static void on_signal(int number)
{
	(void)number;
	_exit(7);
}

// parent has a child that exits with status 7 at SIGUSR1, and waits for it when
// told to.
static void parent(void)
{
	pid_t pid;

	signal(SIGUSR1, on_signal);
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	printf("child %d\n", pid);
	say("ready");
	hear();
	waitpid(pid, NULL, 0);
	say("reaped");
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "wait";

	if (!strcmp(mode, "parent"))
		parent();
	if (!strcmp(mode, "threads"))
		threads(3);
	if (!strcmp(mode, "leaderless")) {
		threads(1);
		say("ready");
		pthread_exit(NULL);
	}
	if (!strcmp(mode, "island"))
		island();
	if (!strcmp(mode, "map"))
		for (int i = 2; i < argc; i++)
			map(argv[i]);
	if (!strcmp(mode, "memfd"))
		map_memfd();
	if (!strcmp(mode, "dlopen") && !dlopen(argv[2], RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	if (!strcmp(mode, "chroot")) {
		if (chroot(argv[2]) || chdir("/"))
			fail(argv[2]);
		map(argv[3]);
	}
	say("ready");
	hear();
	if (!strcmp(mode, "exec"))
		execl("/proc/self/exe", argv[0], "wait", NULL);
	return 7;
}

#endif
