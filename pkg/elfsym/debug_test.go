// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestDebugLink(t *testing.T) {
	lib := buildSymbols(t)
	dir := filepath.Dir(lib)
	run(t, dir, "objcopy", "--only-keep-debug", lib, "lib.debug")
	run(t, dir, "objcopy", "--strip-all", "--add-gnu-debuglink=lib.debug", lib)
	b, err := os.ReadFile(filepath.Join(dir, "lib.debug"))
	if err != nil {
		t.Fatal(err)
	}
	name, crc, ok := openFile(t, lib).DebugLink()
	if want := crc32.ChecksumIEEE(b); !ok || name != "lib.debug" || crc != want {
		t.Errorf("debug link is %q, %#x, %v; want lib.debug, %#x", name, crc, ok, want)
	}
	if _, _, ok := openFile(t, buildSymbols(t)).DebugLink(); ok {
		t.Error("a file without a debug link has one")
	}
}

func TestDebugLinkOutOfFolder(t *testing.T) {
	for _, name := range []string{"../etc/shadow", "/etc/shadow", "..", ".", "", "a/b", "unterminated"} {
		b := newELF()
		content := append([]byte(name), 0, 0, 0, 0, 0, 0, 0, 0)
		if name == "unterminated" {
			content = []byte(name)
		}
		b.section(".gnu_debuglink", elf.SHT_PROGBITS, 0, 0, content)
		if got, _, ok := b.open(t).DebugLink(); ok {
			t.Errorf("debug link %q accepted as %q", name, got)
		}
	}
}

func TestDebugAltLink(t *testing.T) {
	b := newELF()
	b.section(".gnu_debugaltlink", elf.SHT_PROGBITS, 0, 0, []byte("../../.dwz/x.debug\x00\xc0\xff\xee"))
	path, id, ok := b.open(t).DebugAltLink()
	if path != "../../.dwz/x.debug" || id != "c0ffee" || !ok {
		t.Errorf("alternate debug link is %q, %q, %v", path, id, ok)
	}
}

// buildMiniDebug strips a library and gives it mini debug information, in the
// way of rpm's find-debuginfo.
func buildMiniDebug(tb testing.TB, xzFlags ...string) string {
	tb.Helper()
	lib := buildSymbols(tb)
	dir := filepath.Dir(lib)
	testutil.RequireTool(tb, "nm", "objcopy", "xz")
	run(tb, dir, "sh", "-ec", `
nm -D `+lib+` --format=posix --defined-only | awk '{ print $1 }' | sort >dynsyms
nm `+lib+` --format=posix --defined-only | awk '{ if ($2 == "T" || $2 == "t" || $2 == "D") print $1 }' | sort >funcsyms
comm -13 dynsyms funcsyms >keep
objcopy --only-keep-debug `+lib+` debug
objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=keep debug mini
xz `+strings.Join(xzFlags, " ")+` mini
objcopy --strip-all --add-section .gnu_debugdata=mini.xz `+lib+`
`)
	return lib
}

func TestMiniDebug(t *testing.T) {
	for _, flags := range [][]string{nil, {"--check=none"}, {"--check=crc32"}, {"--check=sha256"}, {"--block-size=4096"}, {"-9e"}} {
		f := openFile(t, buildMiniDebug(t, flags...))
		if got, err := f.Lookup("hidden_static"); len(got) != 0 || err != nil {
			t.Fatalf("xz %v: the file itself has %v, %v; want nothing", flags, got, err)
		}
		m, err := f.MiniDebug()
		if err != nil {
			t.Fatalf("xz %v: %v", flags, err)
		}
		got, err := m.Lookup("hidden_static", "partially_cold.cold")
		if err != nil || len(got) != 2 {
			t.Errorf("xz %v: mini debug information has %v, %v; want both", flags, got, err)
		}
		tab, err := m.FuncTable()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tab.Find(got["hidden_static"].Value+1, f); !ok || s.Name != "hidden_static" {
			t.Errorf("xz %v: found %+v, %v", flags, s, ok)
		}
		if _, err := m.MiniDebug(); !errors.Is(err, ErrNoSection) {
			t.Errorf("xz %v: mini debug information within itself: %v", flags, err)
		}
	}
	if _, err := openFile(t, buildSymbols(t)).MiniDebug(); !errors.Is(err, ErrNoSection) {
		t.Errorf("file without mini debug information: %v, want ErrNoSection", err)
	}
}

func TestSectionCompressed(t *testing.T) {
	want, err := openFile(t, buildSymbols(t)).Section(".debug_info")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"zlib", "zlib-gnu", "zstd", "none"} {
		lib := buildSymbols(t)
		run(t, filepath.Dir(lib), "objcopy", "--compress-debug-sections="+kind, lib)
		f := openFile(t, lib)
		name := ".debug_info"
		if kind == "zlib-gnu" {
			if _, err := f.Section(name); errors.Is(err, ErrNoSection) {
				name = ".zdebug_info"
			}
		}
		got, err := f.Section(name)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: content differs", kind)
		}
		if _, err := f.SectionReader(name); (kind == "none") != (err == nil) || err != nil && !errors.Is(err, ErrCompressed) {
			t.Errorf("%s: random access gives %v", kind, err)
		}
		var b bytes.Buffer
		if _, err := f.Decompress(name, &b, int64(len(want)-1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: decompressing beyond the limit gives %v, want ErrTooLarge", kind, err)
		}
	}
	if _, err := openFile(t, buildSymbols(t)).Section(".no_such"); !errors.Is(err, ErrNoSection) {
		t.Errorf("a section that is not there gives %v", err)
	}
}
