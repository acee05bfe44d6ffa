// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// sample is an address and the mapping it lies in.
type sample struct {
	addr uint64
	m    *alloc.Mapping
}

// spread returns n addresses within functions, spread evenly over the code of
// libtorch_cpu, libpython and libc, those of the three that are installed.
func spread(tb testing.TB, n int) []sample {
	tb.Helper()
	var found []string
	for _, pattern := range []string{
		"/usr/lib/*-linux-gnu/libtorch_cpu.so.*.*.*", "/usr/lib/*-linux-gnu/libpython3*.so.1.0", "/usr/lib/*-linux-gnu/libc.so.6",
	} {
		if m, _ := filepath.Glob(pattern); len(m) > 0 {
			found = append(found, m[0])
		}
	}
	if len(found) == 0 {
		testutil.Skipf(tb, "none of libtorch_cpu, libpython and libc was found")
	}
	var all []sample
	for _, path := range found {
		e := openELF(tb, path)
		m := fileMapping(path)
		m.BuildID = e.BuildID()
		for _, s := range e.Segments() {
			if s.Flags&1 == 0 {
				continue
			}
			for i := range n / len(found) {
				v := s.Vaddr + s.Filesz/uint64(n/len(found))*uint64(i)
				if lo, hi, ok := e.FunctionRange(v); ok {
					v = lo + (hi-lo)/2
				}
				all = append(all, sample{m.Start + v - s.Vaddr + s.Off, m})
			}
		}
	}
	return all
}

// BenchmarkCold symbolizes 2000 addresses with nothing known beforehand. It
// reports the memory that is kept, and the share of frames with a name and with
// a line.
func BenchmarkCold(b *testing.B) {
	samples := spread(b, 2000)
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s *Symbolizer
	var named, lines int
	for b.Loop() {
		if s != nil {
			s.Close()
		}
		s = New(openMapping, Options{OpenDebug: func(p string) (*os.File, error) { return os.Open(p) }})
		named, lines = 0, 0
		for _, x := range samples {
			f := s.Frames(x.addr, x.m)
			if f[0].Function != "" {
				named++
			}
			if f[0].Line != 0 {
				lines++
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-kept")
	b.ReportMetric(100*float64(named)/float64(len(samples)), "%named")
	b.ReportMetric(100*float64(lines)/float64(len(samples)), "%lines")
	for _, err := range s.Errors() {
		if !errors.Is(err, fs.ErrNotExist) {
			b.Error(err)
		}
	}
	s.Close()
}

func BenchmarkWarm(b *testing.B) {
	samples := spread(b, 2000)
	s := New(openMapping, Options{OpenDebug: func(p string) (*os.File, error) { return os.Open(p) }})
	defer s.Close()
	for _, x := range samples {
		s.Frames(x.addr, x.m)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x := samples[i%len(samples)]
		s.Frames(x.addr, x.m)
	}
}
