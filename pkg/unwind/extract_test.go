// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// realFiles are files that programs run, by what is special about each.
var realFiles = []struct{ name, glob, pkg string }{
	{"libc", "/lib/*/libc.so.6", "libc6"},
	{"loader", "/lib*/ld-linux-[xa][8a]*.so.*", "libc6"},
	{"libstdc++", "/usr/lib/*/libstdc++.so.6", "libstdc++6"},
	{"libcrypto", "/usr/lib/*/libcrypto.so.*", "libssl3"},
	{"libpython", "/root/.pyenv/versions/3.1[0-9]*/lib/libpython3.1*.so.1.0", "a pyenv"},
	{"python", "/usr/bin/python3.[0-9][0-9]", "python3"},
	{"libtorch", "/usr/lib/*/libtorch_cpu.so.*", "libtorch1.13"},
	{"musl", "/lib/ld-musl-*.so.1", "musl"},
	{"go", "/usr/local/go/bin/go", "a Go distribution"},
}

func realFile(tb testing.TB, name string) string {
	tb.Helper()
	for _, f := range realFiles {
		if f.name != name {
			continue
		}
		paths, err := filepath.Glob(f.glob)
		if err != nil {
			tb.Fatal(err)
		}
		if len(paths) == 0 {
			tb.Skipf("no %s (install %s)", f.glob, f.pkg)
		}
		return paths[len(paths)-1]
	}
	tb.Fatalf("no file %q in the list", name)
	return ""
}

func open(tb testing.TB, path string) *os.File {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}

// compareFile checks the table of a file against the extractor's deltas, which
// it takes by the extractor's own way into the file.
func compareFile(t *testing.T, path string) *Table {
	t.Helper()
	f := open(t, path)
	table, err := Extract(f)
	if err != nil {
		t.Fatal(err)
	}
	d, err := elfunwindinfo.Extract(path)
	if err != nil {
		t.Fatal(err)
	}
	size, err := regularSize(f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(f, size)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, table, d, s.text)
	return table
}

func TestExtractRealFiles(t *testing.T) {
	for _, f := range realFiles {
		t.Run(f.name, func(t *testing.T) {
			compareFile(t, realFile(t, f.name))
		})
	}
	t.Run("self", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		compareFile(t, self)
	})
}

func TestExtractStaticMusl(t *testing.T) {
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		t.Skip("no musl-gcc (install musl-tools)")
	}
	src := filepath.Join(t.TempDir(), "static.c")
	const code = "#include <stdio.h>\n#include <signal.h>\nint main(void) { signal(SIGINT, SIG_DFL); return puts(\"x\"); }\n"
	if err := os.WriteFile(src, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	compareFile(t, testutil.BuildWith(t, "musl-gcc", []string{src}, "-static"))
}

// A signal handler's frame returns to the trampoline, which nothing calls: the
// unwinder looks up the byte before it.
func TestExtractSignalTrampoline(t *testing.T) {
	path := realFile(t, "libc")
	d, err := elfunwindinfo.Extract(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Extract(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	want := Info{Flags: FlagCommand, Param: CommandSignal}
	found := false
	for _, b := range d.Blocks {
		if len(b.Deltas) != 1 || infoOf(b.Deltas[0].Info) != want {
			continue
		}
		found = true
		for addr := b.Start - 1; addr < b.End; addr++ {
			if got := lookup(table, addr); got != want {
				t.Errorf("at %#x: got %+v", addr, got)
			}
		}
	}
	if !found {
		t.Error("no signal trampoline in libc")
	}
}

func TestExtractEntryPoint(t *testing.T) {
	path := realFile(t, "python")
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := Extract(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	want := Info{Flags: FlagCommand, Param: CommandStop}
	if got := lookup(table, f.Entry+8); got != want {
		t.Errorf("at _start+8: got %+v, want a stop", got)
	}
}

// selfVDSO returns the vDSO image of this process.
func selfVDSO(tb testing.TB) []byte {
	tb.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var start, end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			tb.Fatal(err)
		}
		image := make([]byte, end-start)
		if _, err := open(tb, "/proc/self/mem").ReadAt(image, start); err != nil {
			tb.Fatal(err)
		}
		return image
	}
	tb.Skip("no vDSO mapped")
	return nil
}

func TestExtractVDSO(t *testing.T) {
	image := selfVDSO(t)
	table, err := ExtractAt(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vdso.so")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(compareFile(t, path), table); diff != "" {
		t.Errorf("from memory and from a file (-file +memory):\n%s", diff)
	}
}

func TestExtractWithoutSectionHeaders(t *testing.T) {
	path := realFile(t, "libstdc++")
	want, err := Extract(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[40:48]) // e_shoff
	clear(data[60:64]) // e_shnum, e_shstrndx
	got, err := ExtractAt(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with and without section headers (-with +without):\n%s", diff)
	}
}

func TestExtractDeleted(t *testing.T) {
	data, err := os.ReadFile(realFile(t, "libc"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libc.so.6")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(7, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := Extract(f); err != nil {
		t.Error(err)
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 7 {
		t.Errorf("position moved to %d, %v", at, err)
	}
}

func TestExtractConcurrently(t *testing.T) {
	path := realFile(t, "libstdc++")
	f := open(t, path)
	want, err := Extract(f)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := Extract(f)
			if err != nil || !cmp.Equal(want, got) {
				t.Errorf("concurrent extraction differs, %v", err)
			}
		})
	}
	wg.Wait()
}

func TestExtractRefuses(t *testing.T) {
	testutil.NoLeakedFDs(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"script", script, ErrNotELF},
		{"empty", empty, ErrNotELF},
		{"directory", dir, ErrUnsupported},
		{"device", "/dev/zero", ErrUnsupported},
	} {
		f, err := os.Open(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Extract(f); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		f.Close()
	}
}
