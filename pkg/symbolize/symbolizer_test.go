// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestUnknownAddresses(t *testing.T) {
	lib := buildSymbols(t)
	m := fileMapping(lib)
	s := New(openMapping, Options{})
	defer s.Close()
	for _, c := range []struct {
		name string
		addr uint64
		m    *alloc.Mapping
	}{
		{"no mapping", 0x1234, nil},
		{"below the mapping", m.Start - 1, m},
		{"above the mapping", m.End, m},
		{"in the header", m.Start + 1, m},
		{"beyond the file", m.End - 1, m},
	} {
		got := s.Frames(c.addr, c.m)
		if d := cmp.Diff([]alloc.Frame{{Address: c.addr, Mapping: c.m}}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestFrame looks at every field of one physical function with two inlined.
func TestFrame(t *testing.T) {
	exe := buildInline(t)
	s := New(openMapping, Options{})
	defer s.Close()
	m := fileMapping(exe)
	src := abs(t, filepath.Join(testutil.Root(t), "testdata/elf"))
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, v := range textAddrs(t, exe, 1) {
		addr := m.Start + fileOffset(f, v)
		got := s.Frames(addr, m)
		if len(got) != 2 || got[0].Function != "square" || got[1].Function != "outer::(anonymous namespace)::Box::area" {
			continue
		}
		want := []alloc.Frame{
			{Function: "square", File: src + "/inline.h", Line: 9, StartLine: 9, Inlined: true, Address: addr, Mapping: m},
			{
				Function: "outer::(anonymous namespace)::Box::area", SystemName: "_ZNK5outer12_GLOBAL__N_13BoxIiLi3EE4areaEv",
				File: src + "/inline.cc", Line: 29, StartLine: 29, Address: addr, Mapping: m,
			},
		}
		if got[1].SystemName != want[1].SystemName {
			want[1].SystemName = "_ZNK5outer12_GLOBAL__N_13BoxIlLi5EE4areaEv"
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("frames at %#x (-want +got):\n%s", v, d)
		}
		return
	}
	t.Error("square is inlined into no area")
}

// TestTwoMappingsOfAFile has the segments of one file mapped apart, and asks
// for the bias that follows.
func TestTwoMappingsOfAFile(t *testing.T) {
	lib := buildSymbols(t)
	f, err := elf.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	opened := 0
	s := New(func(m alloc.Mapping) (*os.File, error) { opened++; return os.Open(m.File) }, Options{})
	defer s.Close()
	values := symbolValues(t, lib)
	for i, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		for _, base := range []uint64{0x7f0000000000, 0x7e0000000000} {
			page := p.Off &^ 0xfff
			m := &alloc.Mapping{Start: base + uint64(i)<<20, End: base + uint64(i+1)<<20, Offset: page, File: lib}
			addr := m.Start + (values["exported"] + 2 - p.Vaddr + p.Off - page)
			if got := s.Frames(addr, m); got[0].Function != "exported" || got[0].Address != addr || got[0].Mapping != m {
				t.Errorf("%#x is in %+v, want exported", addr, got)
			}
		}
	}
	if len(s.files) != 1 {
		t.Errorf("%d files are open, want 1", len(s.files))
	}
	if opened != 2 { // two mappings that nothing connects before the file is open
		t.Errorf("opened %d times, want 2", opened)
	}
}

func TestEqualBuildIDsAreOpenedOnce(t *testing.T) {
	lib := buildSymbols(t)
	id := buildIDOf(t, lib)
	opened := 0
	s := New(func(m alloc.Mapping) (*os.File, error) { opened++; return os.Open(lib) }, Options{})
	defer s.Close()
	off := uint64(0)
	for i := range 5 {
		m := fileMapping(fmt.Sprintf("/container%d/lib.so", i))
		m.BuildID = id
		m.Start += off
		off += 1 << 30
		s.Frames(m.Start+0x1000, m)
	}
	if opened != 1 {
		t.Errorf("opened %d times, want once", opened)
	}
}

func TestErrors(t *testing.T) {
	testutil.NoLeakedFDs(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "b.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("text\n", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	s := New(func(m alloc.Mapping) (*os.File, error) {
		switch m.File {
		case "/d":
			return nil, nil
		case "/c":
			return os.Open(dir)
		}
		return os.Open(m.File)
	}, Options{OpenDebug: func(string) (*os.File, error) { return nil, errNotThere }})
	defer s.Close()
	for _, file := range []string{"/a-missing", text, "/c", "/d", text} {
		m := fileMapping(file)
		if got := s.Frames(m.Start+64, m); len(got) != 1 || got[0].Function != "" {
			t.Errorf("%s has %+v", file, got)
		}
	}
	errs := s.Errors()
	if len(errs) != 4 {
		t.Fatalf("errors %v, want four", errs)
	}
	for i, want := range []error{os.ErrNotExist, nil, errNoFile, elfsym.ErrNotELF} {
		if want != nil && !errors.Is(errs[i], want) {
			t.Errorf("error %d is %v, want %v", i, errs[i], want)
		}
	}
}

func TestClose(t *testing.T) {
	testutil.NoLeakedFDs(t)
	exe := buildInline(t)
	debug := split(t, exe)
	m := fileMapping(exe)
	s := New(openMapping, Options{OpenDebug: root{debug: debug}.open})
	values := symbolValues(t, exe+".debug")
	addr := m.Start + values["run_shapes"] + 1 // an address is its offset in this file
	before := s.Frames(addr, m)
	if before[len(before)-1].Function != "run_shapes" || before[0].Line == 0 {
		t.Fatalf("%#x is in %+v, want run_shapes with a line", addr, before)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(before, s.Frames(addr, m)); d != "" {
		t.Errorf("after Close (-before +after):\n%s", d)
	}
	if got := s.Frames(addr+1, m); got[0].Function != "" {
		t.Errorf("found %+v after Close", got)
	}
	other := fileMapping(debug)
	if got := s.Frames(other.Start+1, other); got[0].Function != "" {
		t.Errorf("found %+v after Close", got)
	}
}

// TestAfterExit symbolizes a process that is gone and whose file was deleted,
// from a descriptor that was opened before.
func TestAfterExit(t *testing.T) {
	src := filepath.Join(t.TempDir(), "where.c")
	code := "#include <stdio.h>\nint main(void) { printf(\"main %p\\n\", (void *)main); fflush(stdout); getchar(); return 0; }\n"
	if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	exe := testutil.BuildC(t, []string{src}, "-pie", "-fPIE")
	target := testutil.Start(t, exe)
	var addr uint64
	if _, err := fmt.Sscanf(target.WaitLine("main"), "main %v", &addr); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", target.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var m *alloc.Mapping
	for _, line := range strings.Split(string(maps), "\n") {
		var x alloc.Mapping
		var perm, rest string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %s", &x.Start, &x.End, &perm, &x.Offset, &rest)
		if n == 5 && x.Start <= addr && addr < x.End {
			x.File = exe
			m = &x
		}
	}
	held, err := os.Open(fmt.Sprintf("/proc/%d/exe", target.PID()))
	if err != nil {
		t.Fatal(err)
	}
	target.CloseInput()
	if err := target.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	s := New(func(alloc.Mapping) (*os.File, error) { return held, nil }, Options{})
	defer s.Close()
	got := s.Frames(addr, m)
	if len(got) != 1 || got[0].Function != "main" || got[0].Line != 2 || got[0].File != src {
		t.Errorf("%#x is in %+v, want main at %s:2", addr, got, src)
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	exe := buildInline(t)
	lib := buildSymbols(t)
	debug := split(t, exe)
	s := New(openMapping, Options{OpenDebug: root{debug: debug}.open})
	values := symbolValues(t, debug, lib)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for _, file := range []string{exe, lib} {
				m := fileMapping(file)
				for _, v := range values {
					s.Frames(m.Start+v+uint64(i), m)
				}
			}
			s.Errors()
			if i == 7 {
				s.Close()
			}
		})
	}
	wg.Wait()
}
