// SPDX-License-Identifier: Apache-2.0

// Functions inlined into each other, in namespaces, classes, templates and
// lambdas, across lines and across a macro, for comparing source positions.

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inline.h"

namespace outer {
namespace {

struct Shape {
	virtual ~Shape() = default;
	virtual int area() const = 0;
};

template <typename T, int N> struct Box final : Shape {
	T side;
	explicit Box(T s) : side(s) { log_side(static_cast<int>(s)); }
	static inline void log_side(int s) {
		if (s > 1000) std::fprintf(stderr, "large: %d\n", s);
	}
	int area() const override { return square(static_cast<int>(side)) * N; }
};

[[gnu::noinline]] int unlikely_path(int x) {
	std::string s(static_cast<size_t>(x % 7 + 3), 'x');
	return static_cast<int>(s.size()) + square(x);
}

} // namespace

class Registry {
public:
	void add(std::unique_ptr<Shape> s);
	int total() const;
	~Registry();

private:
	std::vector<std::unique_ptr<Shape>> shapes;
	std::map<int, std::string> names;
};

Registry::~Registry() { names.clear(); }

void Registry::add(std::unique_ptr<Shape> s) {
	names[static_cast<int>(shapes.size())] = "shape";
	shapes.push_back(std::move(s));
}

int Registry::total() const {
	int sum = 0;
	for (const auto &s : shapes) {
		auto weigh = [&](int extra) {
			if (__builtin_expect(extra > 100, 0)) return unlikely_path(extra);
			return s->area() + cube(extra);
		};
		sum += weigh(sum & 127);
	}
	return sum;
}

} // namespace outer

extern "C" [[gnu::noinline]] int run_shapes(int n) {
	outer::Registry r;
	for (int i = 0; i < n; i++) {
		if (i % 2)
			r.add(std::make_unique<outer::Box<int, 3>>(i));
		else
			r.add(std::make_unique<outer::Box<long, 5>>(i));
	}
	return r.total();
}

int main(int argc, char **) {
	int n = TWICE(run_shapes(argc + 3));
	std::printf("%d\n", n);
	return n == 0;
}
