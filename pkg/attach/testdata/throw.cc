// SPDX-License-Identifier: Apache-2.0

// Calls operator new with each size that it reads as "new SIZE", and catches
// what it throws.

#include <cstdio>
#include <new>

// The pointer keeps the compiler from leaving out the call.
static void *(*volatile allocate)(std::size_t) = ::operator new;

int main()
{
	static char in[4096], out[4096], line[4096];
	unsigned long size;

	setvbuf(stdin, in, _IOLBF, sizeof(in));
	setvbuf(stdout, out, _IOLBF, sizeof(out));
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "new %lu", &size) != 1)
			return 2;
		try {
			::operator delete(allocate(size));
			puts("allocated");
		} catch (const std::bad_alloc &) {
			puts("caught bad_alloc");
		}
	}
}
