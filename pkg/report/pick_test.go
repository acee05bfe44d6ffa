// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/unfreed/unfreed/internal/terminal"
	"github.com/unfreed/unfreed/pkg/alloc"
)

func TestPick(t *testing.T) {
	app := py("f", "/srv/app/a.py", 1)
	pkg := py("forward", "/srv/venv/lib/python3.11/site-packages/torch/linear.py", 1)
	lib := py("dumps", "/usr/lib/python3.11/json/__init__.py", 1)
	frozen := py("_find_and_load", "<frozen importlib._bootstrap>", 1)
	ext := nat("grow", extMap)
	strdup := nat("strdup", libcMap)
	start := nat("start_thread", libcMap)
	vector := nat("void std::vector<int>::_M_realloc_insert<int>(int&&)", extMap)
	eval, list := interp("_PyEval_EvalFrameDefault"), interp("list_append")

	tests := []struct {
		name           string
		stack          []alloc.Frame
		python, native string
	}{
		{"program's own line, extension", []alloc.Frame{ext, eval, app, eval, start}, "f", "grow"},
		{"through a package: its caller, and what it called", []alloc.Frame{strdup, ext, eval, pkg, eval, app, start}, "f", "grow"},
		{"through the standard library", []alloc.Frame{eval, lib, eval, app, start}, "f", ""},
		{"packages only: the nearest", []alloc.Frame{ext, pkg, lib}, "forward", "grow"},
		{"import machinery", []alloc.Frame{frozen, app}, "f", ""},
		{"Python itself", []alloc.Frame{list, eval, app, ext, start}, "f", ""},
		{"allocators are passed over", []alloc.Frame{strdup, vector, ext, app}, "f", "grow"},
		{"allocators only", []alloc.Frame{strdup, app}, "f", ""},
		{"no Python", []alloc.Frame{strdup, vector, ext, start}, "", "grow"},
		{"no Python, allocators only", []alloc.Frame{strdup, start}, "", "strdup"},
		{"start-up of the interpreter", []alloc.Frame{interp("_PyObject_Malloc"), list, start}, "", "list_append"},
		{"nothing", nil, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := func(i int) string {
				if i < 0 {
					return ""
				}
				return tt.stack[i].Function
			}
			python, native := pick(tt.stack)
			if name(python) != tt.python || name(native) != tt.native {
				t.Errorf("picked %q and %q, want %q and %q", name(python), name(native), tt.python, tt.native)
			}
		})
	}
}

func TestInstalled(t *testing.T) {
	for file, want := range map[string]bool{
		"/usr/lib/python3.11/json/__init__.py":          true,
		"/usr/lib/python3/dist-packages/numpy/core.py":  true,
		"/opt/py/lib64/python3.13t/threading.py":        true,
		"/srv/venv/lib/python3.11/site-packages/x/y.py": true,
		"/usr/lib/python311.zip/json/__init__.py":       true,
		"<frozen importlib._bootstrap>":                 true,
		"<string>":                                      false,
		"<stdin>":                                       false,
		"/srv/app/a.py":                                 false,
		"/opt/x/lib/pythonic/a.py":                      false,
		"/opt/x/python3.11/a.py":                        false,
		"a.py":                                          false,
		"lib/python3.11/a.py":                           true,
		"":                                              false,
	} {
		if got := installed(file); got != want {
			t.Errorf("installed(%q) = %v", file, got)
		}
	}
}

func TestAllocator(t *testing.T) {
	in := func(file string) *alloc.Mapping { return &alloc.Mapping{File: file} }
	tests := []struct {
		function, file string
		want           bool
	}{
		{"anything", "/lib/x86_64-linux-gnu/libc.so.6", true},
		{"anything", "/lib/x86_64-linux-gnu/libc-2.31.so", true},
		{"anything", "/usr/lib/libstdc++.so.6.0.30", true},
		{"anything", "/lib/ld-musl-x86_64.so.1", true},
		{"anything", "/lib64/ld-linux-x86-64.so.2", true},
		{"anything", "/usr/lib/libjemalloc.so.2", true},
		{"anything", "/usr/lib/libtcmalloc_minimal.so.4", true},
		{"anything", "/usr/lib/libmimalloc-secure.so.2.0", true},
		{"anything", "/usr/lib/libcrypto.so.3", false},
		{"anything", "/usr/lib/libldap.so.2", false},
		{"anything", "/usr/lib/libc10.so", false},
		{"operator new(unsigned long)", "/app/x.so", true},
		{"Pool::operator new(unsigned long)", "/app/x.so", true},
		{"void std::vector<int>::f<int>(int&&)", "/app/x.so", true},
		{"std::vector<int> mine::make<int>(int)", "/app/x.so", false},
		{"mine::f(std::vector<int>)", "/app/x.so", false},
		{"mine::(anonymous namespace)::f(int)", "/app/x.so", false},
		{"alloc::raw_vec::RawVec<T,A>::grow_one", "/app/x.so", true},
		{"__rust_alloc", "/app/x.so", true},
		{"c10::alloc_cpu(unsigned long)", "/app/libc10.so", true},
		{"_PyObject_Malloc", "/usr/bin/python3", true},
		{"", "/app/x.so", false},
	}
	for _, tt := range tests {
		if got := allocator(&alloc.Frame{Function: tt.function, Mapping: in(tt.file)}); got != tt.want {
			t.Errorf("allocator(%q in %q) = %v", tt.function, tt.file, got)
		}
	}
}

func TestBare(t *testing.T) {
	for name, want := range map[string]string{
		"f":                                      "f",
		"at::empty(c10::ArrayRef<long>, bool)":   "at::empty",
		"void std::vector<int>::f<int>(int&&)":   "std::vector<int>::f<int>",
		"a::(anonymous namespace)::f(int) const": "a::(anonymous namespace)::f",
		"(anonymous namespace)::f(int)":          "(anonymous namespace)::f",
		"operator new(unsigned long)":            "operator new",
		"X::operator()(int)":                     "X::operator()",
		"libfoo.so+0x1234":                       "libfoo.so+0x1234",
		"<module>":                               "<module>",
		"":                                       "",
		">>(":                                    ">>(",
	} {
		if got := bare(name); got != want {
			t.Errorf("bare(%q) = %q, want %q", name, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("void std::vector<int>::f<int>(int&&)", 20)
	f.Add("実行(", 3)
	f.Add("libfoo.so+0x1234", 9)
	f.Fuzz(func(t *testing.T, s string, n int) {
		s = terminal.Clean(s)
		n = max(min(n, 200), 0)
		if got, all := bare(s), unqualify(s); !strings.HasPrefix(all, got) {
			t.Errorf("bare(%q) = %q, not the start of %q", s, got, all)
		}
		if got := name(s, n); terminal.Columns(got) > n {
			t.Errorf("cut %q to %d columns: %q has %d", s, n, got, terminal.Columns(got))
		}
		for _, l := range flow([]string{s, s, "and 2 more native places"}, n+30) {
			if terminal.Columns(l) > n+30 {
				t.Errorf("flow of %q in %d columns has a line %q", s, n+30, l)
			}
		}
		function, place := pair(s, s, n)
		if n > 10 && terminal.Columns(function)+2+terminal.Columns(place) > n && s != "" {
			t.Errorf("pair of %q in %d columns: %q, %q", s, n, function, place)
		}
	})
}
