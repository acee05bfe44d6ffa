// SPDX-License-Identifier: Apache-2.0

/*
 * How a C target talks to a test: markers on stdout, orders on stdin, a line
 * each, without allocating, so that a target's own calls are all there is.
 */
#ifndef TALK_H
#define TALK_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A function that is called by this name: not inlined, cloned, jumped into or
   folded with another of the same code. */
#ifdef __clang__
#define SITE __attribute__((noinline, used))
#else
#define SITE __attribute__((noinline, noclone, no_icf, used))
#endif

/* Makes the compiler believe that p is used, which also keeps a call in front
   of it from becoming a jump. */
#define KEEP(p) __asm__ volatile("" : "+r"(p) : : "memory")

static inline void write_all(const char *s, size_t n)
{
	while (n > 0) {
		ssize_t w = write(STDOUT_FILENO, s, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			_exit(111); /* the test is gone */
		s += w;
		n -= (size_t)w;
	}
}

/* say prints without stdio's buffers, which malloc would provide. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
	char line[1024];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (n < 0 || n >= (int)sizeof(line))
		abort();
	write_all(line, (size_t)n);
}

/* check ends the target where what it relies on does not hold. */
#define CHECK(x)                                                          \
	do {                                                              \
		if (!(x)) {                                               \
			say("FAILED %s:%d %s\n", __FILE__, __LINE__, #x); \
			_exit(112);                                       \
		}                                                         \
	} while (0)

/* read_line waits for a line of stdin; false at its end. */
static inline bool read_line(char *line, size_t size)
{
	size_t n = 0;

	for (;;) {
		char c;
		ssize_t r = read(STDIN_FILENO, &c, 1);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		if (c == '\n')
			break;
		if (n + 1 < size)
			line[n++] = c;
	}
	line[n] = 0;
	return true;
}

/* ready says READY and waits to be told to go on; the target ends with its stdin. */
static inline void ready(void)
{
	char line[64];

	say("READY %d\n", getpid());
	if (!read_line(line, sizeof(line)))
		_exit(0);
}

/* done says DONE and waits for stdin's end, so that the target can be looked at. */
static inline void done(void)
{
	char line[64];

	say("DONE\n");
	while (read_line(line, sizeof(line)))
		;
}

#endif
