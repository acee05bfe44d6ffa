// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// fuzzNames are the sections that are fuzzed, in the order of the arguments.
var fuzzNames = []string{
	".debug_info", ".debug_abbrev", ".debug_line", ".debug_line_str", ".debug_str", ".debug_str_offsets",
	".debug_addr", ".debug_ranges", ".debug_rnglists",
}

// FuzzLookup tries all sections together. The seeds are small programs of two
// compilers and two versions, with and without an abstract origin.
func FuzzLookup(f *testing.F) {
	src := filepath.Join(f.TempDir(), "seed.c")
	code := "static inline int sq(int x) { return x * x; }\n" +
		"int cube(int x) { if (x > 9) return sq(x) * sq(x + 1); return x; }\n" +
		"__attribute__((section(\".other\"))) int far(int x) { return sq(x) + cube(x); }\n"
	if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
		f.Fatal(err)
	}
	for _, compiler := range []string{"gcc", "clang"} {
		for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
			lib := openELF(f, testutil.BuildWith(f, compiler, []string{src}, "-shared", "-fPIC", "-O2", version))
			s := sections{}
			for _, name := range fuzzNames {
				s[name], _ = lib.Section(name)
			}
			addSeed(f, s, 0x1128)
		}
	}
	addSeed(f, sample(), 0x1028)
	for _, c := range brokenSamples() {
		size := 0
		for _, b := range c.s {
			size += len(b)
		}
		if size < 4096 {
			addSeed(f, c.s, 0x1028)
		}
	}
	f.Fuzz(func(t *testing.T, info, abbrev, line, lineStr, str, strOffs, addr, ranges, rngLists []byte, pc uint64) {
		s := sections{}
		for i, b := range [][]byte{info, abbrev, line, lineStr, str, strOffs, addr, ranges, rngLists} {
			s[fuzzNames[i]] = b
		}
		d, err := Open(s.file(t), nil)
		if err != nil {
			return
		}
		defer d.Close()
		d.work = 64 << 20 // a fuzzing input cannot need more
		addrs := []uint64{pc, 0, 1<<64 - 1}
		if !d.indexed {
			d.Lookup(pc)
		}
		for i := range min(len(d.byAddr), 8) {
			addrs = append(addrs, d.byAddr[i].lo, d.byAddr[i].hi-1)
		}
		for _, a := range addrs {
			if n := len(d.Lookup(a)); n > maxInlineDepth+2 {
				t.Errorf("%d frames", n)
			}
		}
		d.Err()
	})
}

func addSeed(f *testing.F, s sections, pc uint64) {
	args := make([]any, 0, len(fuzzNames)+1)
	for _, name := range fuzzNames {
		args = append(args, append([]byte{}, s[name]...))
	}
	f.Add(append(args, pc)...)
}
