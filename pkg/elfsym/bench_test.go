// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"path/filepath"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// openLargest opens libtorch_cpu if it is installed, else libc: a library with
// dynamic symbols only.
func openLargest(tb testing.TB) *File {
	tb.Helper()
	for _, pattern := range []string{"/usr/lib/*-linux-gnu/libtorch_cpu.so.*.*.*", "/lib*/*-linux-gnu/libc.so.6"} {
		if m, _ := filepath.Glob(pattern); len(m) > 0 {
			tb.Log(m[0])
			return openFile(tb, m[0])
		}
	}
	testutil.Skipf(tb, "neither libtorch_cpu nor libc was found (try: apt-get install python3-torch)")
	return nil
}

// reopen returns a File of the same content with nothing cached.
func reopen(tb testing.TB, f *File) *File {
	tb.Helper()
	g, err := Open(f.r, int64(f.size))
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func BenchmarkOpen(b *testing.B) {
	f := openLargest(b)
	b.ReportAllocs()
	for b.Loop() {
		reopen(b, f)
	}
}

// allocators are names of which a C++ library defines few or none, the common
// case when probes are placed.
var allocators = []string{
	"malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc",
	"free", "cfree", "free_sized", "free_aligned_sized", "je_malloc", "_rjem_malloc", "je_arrow_malloc", "mi_malloc",
	"mi_free", "tc_malloc", "tc_free", "mmap", "munmap", "mremap", "cudaMalloc", "cudaFree",
}

func BenchmarkLookupDynamic(b *testing.B) {
	f := openLargest(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reopen(b, f).Lookup(allocators...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLookupStatic scans the symbol table of the go command, some 20,000
// symbols.
func BenchmarkLookupStatic(b *testing.B) {
	f := openFile(b, testutil.RequireTool(b, "go"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reopen(b, f).Lookup(allocators...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSymbols(b *testing.B) {
	f := openLargest(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reopen(b, f).Symbols(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFuncTable(b *testing.B) {
	f := openLargest(b)
	b.ReportAllocs()
	for b.Loop() {
		tab, err := reopen(b, f).FuncTable()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(tab.Len()), "symbols")
	}
}

func BenchmarkFind(b *testing.B) {
	f := openLargest(b)
	tab, err := f.FuncTable()
	if err != nil {
		b.Fatal(err)
	}
	lo := tab.rows[0].start
	span := tab.rows[len(tab.rows)-1].start - lo
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		tab.Find(lo+i*0x9e3779b97f4a7c15%span, nil)
	}
}

func BenchmarkFunctionRange(b *testing.B) {
	f := openLargest(b)
	s := f.Segments()[1]
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		f.FunctionRange(s.Vaddr + i*0x9e3779b97f4a7c15%s.Filesz)
	}
}
