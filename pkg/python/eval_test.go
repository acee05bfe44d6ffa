// SPDX-License-Identifier: Apache-2.0

package python

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// openImage opens an ELF file as if it were mapped at its virtual addresses.
func openImage(t *testing.T, path string) *image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ef, err := elfsym.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ef.Segments(), func(s elfsym.Segment) bool { return s.Flags&elf.PF_X != 0 })
	text := ef.Segments()[i]
	img, err := newImage(ef, proc.Mapping{Path: path, Start: text.Vaddr, End: text.Vaddr + text.Memsz, Offset: text.Off})
	if err != nil {
		t.Fatal(err)
	}
	if img == nil {
		t.Fatalf("%s holds no interpreter", path)
	}
	if img.bias != 0 {
		t.Fatalf("bias = %#x, want 0", img.bias)
	}
	return img
}

func evalRangesOf(t *testing.T, path string) []Range {
	t.Helper()
	ranges, err := openImage(t, path).evalRanges()
	if err != nil {
		t.Fatal(err)
	}
	return ranges
}

// stripped returns a stripped copy of a file.
func stripped(t *testing.T, path string) string {
	t.Helper()
	strip := testutil.RequireTool(t, "strip")
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if msg, err := exec.Command(strip, "-s", "-o", out, path).CombinedOutput(); err != nil {
		t.Fatalf("stripping %s: %v\n%s", path, err, msg)
	}
	return out
}

// TestEvalRangesOfParts compares what is found without symbols with what the
// symbols of a small cut function say.
func TestEvalRangesOfParts(t *testing.T) {
	for _, compiler := range []string{"gcc", "clang"} {
		for _, flags := range []string{"-O2 -rdynamic", "-O3 -rdynamic", "-O2 -rdynamic -no-pie", "-O2 -rdynamic -fcf-protection"} {
			t.Run(compiler+" "+flags, func(t *testing.T) {
				path := testutil.BuildWith(t, compiler, []string{"pkg/python/testdata/evalparts.c"}, strings.Fields(flags)...)
				want := symbolRanges(t, path)
				if compiler == "gcc" && len(want) < 2 {
					t.Fatalf("the function was not cut: %x", want)
				}
				for name, path := range map[string]string{"with symbols": path, "stripped": stripped(t, path)} {
					if diff := cmp.Diff(want, evalRangesOf(t, path)); diff != "" {
						t.Errorf("%s: parts (-want +got):\n%s", name, diff)
					}
				}
			})
		}
	}
}

// symbolRanges returns where the symbols of an unstripped file say that the eval
// function and its parts are.
func symbolRanges(t *testing.T, path string) []Range {
	t.Helper()
	syms, err := openImage(t, path).Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var ranges []Range
	for _, s := range syms {
		if s.Name == symEval || strings.HasPrefix(s.Name, symEval+".") {
			ranges = append(ranges, Range{s.Value, s.Value + s.Size})
		}
	}
	return ranges
}

// TestEvalRangesOfPythons does the same for real interpreters: of those with
// symbols a stripped copy has to give the same parts, except for parts that no
// jump leads to and that call nothing, so that no stack is ever seen in them.
func TestEvalRangesOfPythons(t *testing.T) {
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, "-c", "print('READY', flush=True); input()")
			target.WaitLine("READY")
			r, err := find(t, openProcess(t, target.PID()))
			if err != nil {
				t.Fatal(err)
			}
			// The kernel names a chroot's files as this machine sees them.
			if _, err := openImage(t, r.Path).SectionReader(".symtab"); err != nil {
				t.Skipf("symbols are missing in %s: %v", r.Path, err)
			}
			want := symbolRanges(t, r.Path)
			got := evalRangesOf(t, stripped(t, r.Path))
			for _, w := range want {
				if !slices.Contains(got, w) && callsSomething(t, r.Path, w) {
					t.Errorf("the part %x is missing in %x", w, got)
				}
			}
			for _, g := range got {
				if !slices.Contains(want, g) {
					t.Errorf("%x is no part of the function, which has %x", g, want)
				}
			}
		})
	}
}

func callsSomething(t *testing.T, path string, r Range) bool {
	img := openImage(t, path)
	code := make([]byte, r.End-r.Start)
	if _, err := img.ReadVaddr(code, r.Start); err != nil {
		t.Fatal(err)
	}
	return hasCall(code, r.Start)
}
