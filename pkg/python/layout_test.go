// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestLayoutMatchesHeaders compares the layouts with offsetof on the headers of
// each CPython that has its headers installed.
func TestLayoutMatchesHeaders(t *testing.T) {
	tested := 0
	for _, py := range testutil.Pythons(t) {
		include := includeDir(t, &py)
		if _, err := os.Stat(filepath.Join(include, "internal/pycore_runtime.h")); err != nil {
			t.Logf("skipping %s: its headers are missing: %v", py.String(), err)
			continue
		}
		tested++
		t.Run(py.String(), func(t *testing.T) {
			got := offsets(t, &py, include)
			compareLayout(t, layouts[uint8(py.Minor)], got)
			compareConstants(t, got)
			if py.Minor >= firstDebugOffsets {
				compareDebugOffsets(t, debugOffsets[uint8(py.Minor)], got)
			}
		})
	}
	if tested == 0 {
		testutil.Skipf(t, "a CPython with headers is missing (install python3-dev)")
	}
}

// includeDir asks an interpreter where its headers are, and returns where this
// machine sees them.
func includeDir(t *testing.T, py *testutil.Python) string {
	out, err := py.Command("-c", "import sysconfig; print(sysconfig.get_paths()['include'])").Output()
	if err != nil {
		t.Fatalf("asking %s for its headers: %v", py.String(), err)
	}
	return filepath.Join(py.Chroot, strings.TrimSpace(string(out)))
}

// offsets compiles layout.c with the headers and runs it.
func offsets(t *testing.T, py *testutil.Python, include string) map[string]int64 {
	flags := []string{"-isystem", include, "-isystem", filepath.Join(include, "internal")}
	if multiarch := multiarchDir(t, py, include); multiarch != "" {
		flags = append(flags, "-isystem", multiarch)
	}
	path := testutil.BuildC(t, []string{"pkg/python/testdata/layout.c"}, flags...)
	out, err := exec.Command(path).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var name string
		var value int64
		if _, err := fmt.Sscan(s.Text(), &name, &value); err != nil {
			t.Fatalf("parsing %q: %v", s.Text(), err)
		}
		got[name] = value
	}
	return got
}

// multiarchDir makes Debian's <x86_64-linux-gnu/python3.N/pyconfig.h> of another
// root visible without that root's libc headers.
func multiarchDir(t *testing.T, py *testutil.Python, include string) string {
	if py.Chroot == "" {
		return ""
	}
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(include), "*-linux-gnu*", filepath.Base(include)))
	if len(dirs) != 1 {
		return ""
	}
	dir := filepath.Join(py.Chroot, py.TempDir(t))
	triplet := filepath.Join(dir, filepath.Base(filepath.Dir(dirs[0])))
	if err := os.Mkdir(triplet, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dirs[0], filepath.Join(triplet, filepath.Base(include))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// derived are fields of Layout that are no offsets of C's.
var derived = []string{
	"FrameSize", "InstrIsIndex", "InstrUnit", "EntryIsShim", "CodeMask", "CodeIdent", "LineFormat",
}

func compareLayout(t *testing.T, l Layout, got map[string]int64) {
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains(derived, name) {
			continue
		}
		var want int64
		if f := v.Field(i); f.CanInt() {
			want = f.Int()
		} else {
			want = int64(f.Uint())
		}
		if got[name] != want {
			t.Errorf("%s = %d, the headers say %d", name, want, got[name])
		}
	}
	for _, off := range []uint32{l.CodeFilename, l.CodeQualname, l.CodeLineTable} {
		if off < l.CodeIdent || off+8 > l.CodeIdent+IdentSize || (off-l.CodeIdent)%8 != 0 {
			t.Errorf("the word at %d is not among those at CodeIdent = %d", off, l.CodeIdent)
		}
	}
	for _, end := range []uint32{l.FrameCode + 8, l.FramePrev + 8, l.FrameInstr + 4, uint32(max(l.FrameOwner, 0)) + 1} {
		if end > l.FrameSize || l.FrameSize > MaxFrameSize || l.FrameSize%8 != 0 {
			t.Errorf("FrameSize = %d does not cover %d bytes", l.FrameSize, end)
		}
	}
	if !l.InstrIsIndex && l.FrameInstr+8 > l.FrameSize {
		t.Errorf("FrameSize = %d does not cover FrameInstr", l.FrameSize)
	}
}

func compareConstants(t *testing.T, got map[string]int64) {
	for name, want := range map[string]int64{
		"type.members": typeMembers, "member.offset": memberOffset, "member.size": memberSize,
		"state.kind": stateKindShift, "state.compact": stateCompact, "state.ascii": stateASCII,
	} {
		if got[name] != want {
			t.Errorf("%s = %d, the headers say %d", name, want, got[name])
		}
	}
	if unit, ok := got["unit"]; ok && unit != codeUnit {
		t.Errorf("codeUnit = %d, the headers say %d", codeUnit, unit)
	}
}

func compareDebugOffsets(t *testing.T, w debugWords, got map[string]int64) {
	words := map[string]int64{"version": wordVersion, "freeThreaded": wordFreeThreaded}
	v := reflect.ValueOf(w)
	for i := range v.NumField() {
		words[v.Type().Field(i).Name] = v.Field(i).Int()
	}
	size := words["size"]
	delete(words, "size")
	for name, want := range words {
		if g, ok := got["debug."+name]; !ok || g != want {
			t.Errorf("%s is word %d, the headers say %d", name, want, g)
		}
		if want >= size {
			t.Errorf("size = %d does not cover word %d", size, want)
		}
	}
}
