// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestDebugPaths(t *testing.T) {
	got := debugPaths("/usr/lib/x/libz.so.1", "abcdef01", "libz.debug")
	want := []string{
		"/usr/lib/debug/.build-id/ab/cdef01.debug",
		"/usr/lib/x/libz.debug",
		"/usr/lib/x/.debug/libz.debug",
		"/usr/lib/debug/usr/lib/x/libz.debug",
		"/usr/lib/debug/lib/x/libz.debug",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
	if got := debugPaths("[vdso]", "", "x"); got != nil {
		t.Errorf("paths of no file: %v", got)
	}
}

// TestSeparateDebugFile finds lines in a file that was split off, in each place
// where it can be, and in each state.
func TestSeparateDebugFile(t *testing.T) {
	exe := buildInline(t)
	addrs := textAddrs(t, exe, 16)
	debug := split(t, exe)
	dir, name := filepath.Dir(exe), filepath.Base(debug)
	id := buildIDOf(t, exe)
	packed := filepath.Join(dir, "packed.debug")
	run(t, "objcopy", "--compress-debug-sections=zlib", debug, packed)
	zstd := filepath.Join(dir, "zstd.debug")
	run(t, "objcopy", "--compress-debug-sections=zstd", debug, zstd)
	for _, c := range []struct {
		name string
		root root
	}{
		{"build id", root{buildIDPath(id): debug}},
		{"same folder", root{debug: debug}},
		{".debug folder", root{filepath.Join(dir, ".debug", name): debug}},
		{"debug root", root{filepath.Join(debugRoot, dir, name): debug}},
		{"zlib", root{buildIDPath(id): packed}},
		{"zstd", root{buildIDPath(id): zstd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testutil.NoLeakedFDs(t)
			compare(t, New(openMapping, Options{OpenDebug: c.root.open}), exe, debug, addrs, false)
		})
	}
	t.Run("none", func(t *testing.T) {
		s := New(openMapping, Options{OpenDebug: root{}.open})
		defer s.Close()
		for _, ps := range places(t, s, exe, addrs) {
			if len(ps) != 1 || ps[0].file != "" {
				t.Fatalf("got %v without debug information", ps)
			}
		}
		if errs := s.Errors(); len(errs) != 0 {
			t.Errorf("errors %v", errs)
		}
	})
}

// TestWrongDebugFile offers debug files that must not be used.
func TestWrongDebugFile(t *testing.T) {
	exe := buildInline(t)
	addrs := textAddrs(t, exe, 64)
	debug := split(t, exe)
	id := buildIDOf(t, exe)
	other := buildInline(t, "-O1")
	otherDebug := split(t, other)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("not an ELF file at all, but long enough to hold the header of one, which has 64 bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	errDenied := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}
	for _, c := range []struct {
		name string
		open func(string) (*os.File, error)
		want error
	}{
		{"other build", root{buildIDPath(id): otherDebug}.open, errOtherBuild},
		{"not ELF", root{buildIDPath(id): text}.open, elfsym.ErrNotELF},
		{"denied", func(string) (*os.File, error) { return nil, errDenied }, fs.ErrPermission},
		{"folder", root{buildIDPath(id): filepath.Dir(text)}.open, nil},
		{"nothing", func(string) (*os.File, error) { return nil, nil }, nil},
		{"the file itself", root{debug: exe}.open, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			testutil.NoLeakedFDs(t)
			s := New(openMapping, Options{OpenDebug: c.open})
			defer s.Close()
			for _, ps := range places(t, s, exe, addrs) {
				if ps[0].line != 0 {
					t.Fatalf("got %v from a file that must not be used", ps)
				}
			}
			err := errors.Join(s.Errors()...)
			if c.want != nil && (!errors.Is(err, c.want) || !strings.Contains(err.Error(), exe)) {
				t.Errorf("errors %v, want %v naming %s", err, c.want, exe)
			}
		})
	}
}

// TestDebugLinkChecksum has no build id to tell builds apart.
func TestDebugLinkChecksum(t *testing.T) {
	exe := buildInline(t, "-Wl,--build-id=none")
	addrs := textAddrs(t, exe, 64)
	debug := split(t, exe)
	compare(t, New(openMapping, Options{OpenDebug: root{debug: debug}.open}), exe, debug, addrs, false)

	f, err := os.OpenFile(debug, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s := New(openMapping, Options{OpenDebug: root{debug: debug}.open})
	defer s.Close()
	if ps := places(t, s, exe, addrs[:1]); ps[0][0].line != 0 {
		t.Errorf("got %v from a debug file of another checksum", ps)
	}
	if err := errors.Join(s.Errors()...); !errors.Is(err, errOtherBuild) {
		t.Errorf("errors %v, want %v", err, errOtherBuild)
	}
}

// TestMiniDebug names a static function of a stripped file.
func TestMiniDebug(t *testing.T) {
	lib := buildSymbols(t)
	values := symbolValues(t, lib)
	mini := filepath.Join(filepath.Dir(lib), "mini")
	run(t, "objcopy", "-S", "--keep-symbol=hidden_static", "--keep-symbol=partially_cold.cold", lib, mini)
	run(t, "objcopy", "--only-keep-debug", "--keep-symbol=hidden_static", mini)
	run(t, "xz", "-k", mini)
	run(t, "objcopy", "--strip-all", "--add-section", ".gnu_debugdata="+mini+".xz", lib)
	s := New(openMapping, Options{})
	defer s.Close()
	for name, want := range map[string]place{
		"hidden_static":       {name: "hidden_static"},
		"partially_cold.cold": {name: "partially_cold.cold"},
		"exported":            {name: "exported"},
		"aliased":             {name: "aliased"},
		"chosen":              {}, // in no table that is left
	} {
		got := places(t, s, lib, []uint64{values[name] + 1})[0]
		if d := cmp.Diff([]place{want}, got, cmp.AllowUnexported(place{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	for _, err := range s.Errors() {
		t.Error(err)
	}
}

// TestSupplementaryFile reads what dwz moved into a file common to several.
func TestSupplementaryFile(t *testing.T) {
	testutil.RequireTool(t, "dwz")
	exe, other := buildInline(t), buildInline(t, "-O3")
	addrs := textAddrs(t, exe, 8)
	plain := askLLVM(t, exe, addrs)
	debug, otherDebug := split(t, exe), split(t, other)
	common := filepath.Join(filepath.Dir(exe), "common.debug")
	run(t, "dwz", "-m", common, debug, otherDebug)

	id := buildIDOf(t, exe)
	for _, c := range []struct {
		name string
		root root
	}{
		{"by path", root{buildIDPath(id): debug, common: common}},
		{"by build id", root{buildIDPath(id): debug, buildIDPath(buildIDOf(t, common)): common}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testutil.NoLeakedFDs(t)
			s := New(openMapping, Options{OpenDebug: c.root.open})
			defer s.Close()
			got := places(t, s, exe, addrs)
			for _, err := range s.Errors() {
				t.Error(err)
			}
			diff(t, "llvm-symbolizer before dwz", addrs, got, plain, exactly)
		})
	}
	t.Run("missing", func(t *testing.T) {
		s := New(openMapping, Options{OpenDebug: root{buildIDPath(id): debug}.open})
		defer s.Close()
		got := places(t, s, exe, addrs)
		diff(t, "llvm-symbolizer before dwz", addrs, got, plain, func(p place) string { return "" }) // the depth
		if err := errors.Join(s.Errors()...); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("errors %v, want %v", err, fs.ErrNotExist)
		}
	})
	t.Run("within the file", func(t *testing.T) {
		exe := buildInline(t)
		run(t, "dwz", exe)
		compare(t, New(openMapping, Options{}), exe, exe, addrs, false)
	})
}
