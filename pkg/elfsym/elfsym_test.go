// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// openFile opens an ELF file for the length of a test.
func openFile(tb testing.TB, path string) *File {
	tb.Helper()
	r, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.Close() })
	st, err := r.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	f, err := Open(r, st.Size())
	if err != nil {
		tb.Fatalf("opening %s: %v", path, err)
	}
	return f
}

// buildSymbols builds testdata/elf/symbols.c into a shared library.
func buildSymbols(tb testing.TB, flags ...string) string {
	tb.Helper()
	return testutil.BuildC(tb, []string{"testdata/elf/symbols.c"}, append([]string{"-shared", "-fPIC"}, flags...)...)
}

// run executes a tool in a folder.
func run(tb testing.TB, dir string, args ...string) {
	tb.Helper()
	testutil.RequireTool(tb, args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("running %s: %v\n%s", cmd, err, out)
	}
}

// systemFiles are libraries as the distribution ships them, those that exist.
func systemFiles(tb testing.TB) []string {
	tb.Helper()
	var found []string
	for _, pattern := range []string{
		"/lib*/*-linux-gnu/libc.so.6", "/usr/lib/*-linux-gnu/libstdc++.so.6", "/usr/lib/*-linux-gnu/libpython3*.so.1.0",
		"/usr/lib/*-linux-gnu/libtorch_cpu.so.*.*.*", "/usr/bin/python3",
	} {
		m, err := filepath.Glob(pattern)
		if err != nil {
			tb.Fatal(err)
		}
		found = append(found, m...)
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return append(found, exe)
}

// TestAgainstDebugELF compares headers, segments and symbols of real files with
// what the standard library reads.
func TestAgainstDebugELF(t *testing.T) {
	files := append(systemFiles(t), buildSymbols(t), buildSymbols(t, "-Wl,--hash-style=sysv"))
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			f := openFile(t, path)
			if f.Machine() != want.Machine || f.Type() != want.Type {
				t.Errorf("is %v %v, want %v %v", f.Machine(), f.Type(), want.Machine, want.Type)
			}
			var segs []Segment
			for _, p := range want.Progs {
				if p.Type == elf.PT_LOAD {
					segs = append(segs, Segment{Vaddr: p.Vaddr, Memsz: p.Memsz, Off: p.Off, Filesz: p.Filesz, Flags: p.Flags})
				}
			}
			if d := cmp.Diff(segs, f.Segments()); d != "" {
				t.Errorf("segments (-want +got):\n%s", d)
			}
			dyn, _ := want.DynamicSymbols()
			compareTables(t, "dynamic", want, dyn, f.DynSymbols)
			static, _ := want.Symbols()
			compareTables(t, "all", want, append(static, dyn...), f.Symbols)
		})
	}
}

// compareTables compares a table of symbols with the standard library's.
func compareTables(t *testing.T, what string, file *elf.File, want []elf.Symbol, read func() ([]Symbol, error)) {
	t.Helper()
	type key struct {
		name  string
		value uint64
	}
	expect := make(map[key]bool)
	for _, s := range want {
		typ := elf.ST_TYPE(s.Info)
		name, _, _ := strings.Cut(s.Name, "@")
		if s.Section == elf.SHN_UNDEF || s.Section >= elf.SHN_LORESERVE || name == "" {
			continue
		}
		switch typ {
		case elf.STT_NOTYPE:
			sec := file.Sections[s.Section]
			if sec.Flags&elf.SHF_EXECINSTR == 0 || s.Value-sec.Addr >= sec.Size {
				continue
			}
		case elf.STT_FUNC, elf.STT_OBJECT, elf.STT_GNU_IFUNC:
		default:
			continue
		}
		expect[key{name, s.Value}] = true
	}
	got, err := read()
	if err != nil {
		t.Fatalf("reading %s symbols: %v", what, err)
	}
	have := make(map[key]bool)
	for _, s := range got {
		have[key{s.Name, s.Value}] = true
	}
	if d := cmp.Diff(expect, have, cmp.AllowUnexported(key{})); d != "" {
		t.Errorf("%s symbols (-want +got):\n%.2000s", what, d)
	}
	if !sort.SliceIsSorted(got, func(i, j int) bool { return got[i].Value < got[j].Value }) {
		t.Errorf("%s symbols are not sorted", what)
	}
}

// readBuildID asks readelf.
func readBuildID(tb testing.TB, path string) string {
	tb.Helper()
	out, err := exec.Command(testutil.RequireTool(tb, "readelf"), "-n", path).Output()
	if err != nil {
		tb.Fatal(err)
	}
	_, id, _ := strings.Cut(string(out), "Build ID: ")
	id, _, _ = strings.Cut(id, "\n")
	return strings.TrimSpace(id)
}

func TestBuildID(t *testing.T) {
	for _, path := range systemFiles(t) {
		if got, want := openFile(t, path).BuildID(), readBuildID(t, path); got != want {
			t.Errorf("%s: build id %q, want %q", path, got, want)
		}
	}
	if got := openFile(t, buildSymbols(t, "-Wl,--build-id=none")).BuildID(); got != "" {
		t.Errorf("build id %q of a file without", got)
	}
	if got := openFile(t, buildSymbols(t, "-Wl,--build-id=0xC0FFEE")).BuildID(); got != "c0ffee" {
		t.Errorf("build id %q, want c0ffee", got)
	}
	lib := buildSymbols(t)
	want := readBuildID(t, lib)
	dir := filepath.Dir(lib)
	run(t, dir, "objcopy", "--only-keep-debug", lib, "debug")
	if got := openFile(t, filepath.Join(dir, "debug")).BuildID(); got != want {
		t.Errorf("build id %q of the debug file, want %q", got, want)
	}
	dropSectionTable(t, lib)
	if got := openFile(t, lib).BuildID(); got != want {
		t.Errorf("build id %q without section headers, want %q", got, want)
	}
}

// dropSectionTable makes a file what sstrip makes of it.
func dropSectionTable(tb testing.TB, path string) {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	clear(b[40:48])
	clear(b[58:64])
	if err := os.WriteFile(path, b, 0o755); err != nil {
		tb.Fatal(err)
	}
}

func TestAddresses(t *testing.T) {
	f := openFile(t, buildSymbols(t))
	syms, err := f.Lookup("an_object", "exported", "completed.0")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := f.ReadVaddr(b, syms["an_object"].Value); n != 16 || err != nil {
		t.Fatalf("reading an_object: %d, %v", n, err)
	}
	if want := []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}; !bytes.Equal(b, want) {
		t.Errorf("an_object is % x, want % x", b, want)
	}
	for _, name := range []string{"an_object", "exported"} {
		v := syms[name].Value
		off, ok := f.VaddrToOffset(v)
		if back, ok2 := f.OffsetToVaddr(off); !ok || !ok2 || back != v {
			t.Errorf("%s at %#x is at offset %#x (%v), which is at %#x (%v)", name, v, off, ok, back, ok2)
		}
	}
	if bss, ok := syms["completed.0"]; ok {
		if off, ok := f.VaddrToOffset(bss.Value); ok {
			t.Errorf("a variable in .bss is at offset %#x", off)
		}
		if _, err := f.ReadVaddr(b, bss.Value); err == nil {
			t.Error("reading .bss did not fail")
		}
	}
	last := f.Segments()[len(f.Segments())-1]
	if n, err := f.ReadVaddr(b, last.Vaddr+last.Filesz-5); n != 5 || err == nil {
		t.Errorf("reading over a segment's end: %d, %v; want 5 and an error", n, err)
	}
	if _, err := f.ReadVaddr(b, 1<<60); err == nil {
		t.Error("reading at an address of no segment did not fail")
	}
}
