// SPDX-License-Identifier: Apache-2.0

/*
 * newdelete: C++ allocations, which arrive through malloc, aligned_alloc and
 * free. Sites are members of a class in a namespace, so their names need
 * demangling. It says READY, waits, works, says SITES and DONE as dlopen_late
 * does.
 */
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

namespace ledger
{

struct alignas(64) Line {
	char bytes[192];
};

class Book
{
      public:
	__attribute__((noinline)) int *entry()
	{
		return new int[337];
	}
	__attribute__((noinline)) Line *line()
	{
		return new Line;
	}
	template <typename T> __attribute__((noinline)) void append(std::vector<T> &v, T x)
	{
		v.reserve(709);
		v.push_back(x);
	}
};

} // namespace ledger

template <typename T> static void keep(T &p)
{
	__asm__ volatile("" : "+m"(p) : : "memory");
}

static bool wait_line()
{
	for (int c; (c = std::getchar()) != EOF;)
		if (c == '\n')
			return true;
	return false;
}

int main()
{
	/* Buffers of our own: stdio would allocate its, after READY. */
	static char in[256], out[4096];
	std::setvbuf(stdin, in, _IOLBF, sizeof(in));
	std::setvbuf(stdout, out, _IOLBF, sizeof(out));
	std::printf("READY %d\n", getpid());
	if (!wait_line())
		return 0;

	static std::vector<double> kept;
	ledger::Book book;
	for (int i = 0; i < 100; i++) {
		int *e = book.entry();
		keep(e);
		if (i % 2)
			delete[] e;
		ledger::Line *l = book.line();
		keep(l);
		if (i % 4)
			delete l;
	}
	book.append(kept, 1.0);

	std::printf(
		"SITES ["
		"{\"site\":\"ledger::Book::entry\",\"function\":\"malloc\",\"objects\":50,"
		"\"bytes\":67400,\"allocs\":100,\"alloc_bytes\":134800},"
		"{\"site\":\"ledger::Book::line\",\"function\":\"aligned_alloc\",\"objects\":25,"
		"\"bytes\":4800,\"allocs\":100,\"alloc_bytes\":19200},"
		"{\"site\":\"ledger::Book::append\",\"function\":\"malloc\",\"objects\":1,"
		"\"bytes\":5672,\"allocs\":1,\"alloc_bytes\":5672}]\nDONE\n");
	std::fflush(stdout);
	while (wait_line())
		;
	return 0;
}
