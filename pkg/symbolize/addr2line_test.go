// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// place is a function and source position as addr2line prints it.
type place struct {
	name string // linker-level
	file string
	line int
}

// ask asks a program that prints as addr2line -a -f -i does.
func ask(tb testing.TB, addrs []uint64, args ...string) [][]place {
	tb.Helper()
	testutil.RequireTool(tb, args[0])
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("running %s: %v", cmd, err)
	}
	var all [][]place
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	for i := 0; i < len(lines); {
		if strings.HasPrefix(lines[i], "0x") {
			all = append(all, nil)
			i++
			continue
		}
		pos, _, _ := strings.Cut(lines[i+1], " (discriminator")
		file, num, _ := strings.Cut(pos, ":")
		p := place{name: lines[i], file: path.Clean(file)}
		p.line, _ = strconv.Atoi(num)
		if p.name == "??" {
			p.name = ""
		}
		if strings.HasPrefix(p.file, "??") {
			p.file = ""
		}
		last := len(all) - 1
		all[last] = append(all[last], p)
		i += 2
	}
	if len(all) != len(addrs) {
		tb.Fatalf("%s answered %d of %d addresses", args[0], len(all), len(addrs))
	}
	return all
}

// askLLVM asks llvm-symbolizer, which is right about all that it knows.
func askLLVM(tb testing.TB, file string, addrs []uint64) [][]place {
	tb.Helper()
	return ask(tb, addrs, "llvm-symbolizer", "--obj="+file, "--no-demangle", "--functions=linkage", "--inlining",
		"--output-style=GNU", "--addresses")
}

// askBinutils asks addr2line. Up to binutils 2.40 it is wrong about some file
// names of DWARF 5, and gives inlined functions without a linkage name that of
// the symbol at the address.
func askBinutils(tb testing.TB, file string, addrs []uint64) [][]place {
	tb.Helper()
	return ask(tb, addrs, "addr2line", "-a", "-f", "-i", "-e", file)
}

// fileMapping maps a whole file at one address, as no loader would: file
// offsets are then addresses.
func fileMapping(file string) *alloc.Mapping {
	return &alloc.Mapping{Start: 1 << 40, End: 1 << 41, File: file}
}

func openMapping(m alloc.Mapping) (*os.File, error) { return os.Open(m.File) }

// frames symbolizes virtual addresses of a file.
func frames(tb testing.TB, s *Symbolizer, file string, addrs []uint64) [][]alloc.Frame {
	tb.Helper()
	f, err := elf.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	m := fileMapping(file)
	var all [][]alloc.Frame
	for _, v := range addrs {
		all = append(all, s.Frames(m.Start+fileOffset(f, v), m))
	}
	return all
}

// places symbolizes virtual addresses of a file.
func places(tb testing.TB, s *Symbolizer, file string, addrs []uint64) [][]place {
	tb.Helper()
	var all [][]place
	for _, fs := range frames(tb, s, file, addrs) {
		var got []place
		for _, f := range fs {
			p := place{name: f.SystemName, file: f.File, line: f.Line}
			if p.name == "" {
				p.name = f.Function
			}
			got = append(got, p)
		}
		all = append(all, got)
	}
	return all
}

func fileOffset(f *elf.File, v uint64) uint64 {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && v >= p.Vaddr && v-p.Vaddr < p.Filesz {
			return v - p.Vaddr + p.Off
		}
	}
	return 0
}

// textAddrs returns every step-th address of the sized functions of a file.
func textAddrs(tb testing.TB, file string, step uint64) []uint64 {
	tb.Helper()
	f, err := elf.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		syms, err = f.DynamicSymbols()
	}
	if err != nil {
		tb.Fatal(err)
	}
	seen := make(map[uint64]bool)
	var addrs []uint64
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || seen[s.Value] {
			continue
		}
		seen[s.Value] = true
		for v := s.Value; v < s.Value+s.Size; v += step {
			addrs = append(addrs, v)
		}
	}
	return addrs
}

// TestAgainstAddr2line compares every address of a C++ program with what
// others make of the debug information in its various forms.
func TestAgainstAddr2line(t *testing.T) {
	for _, c := range []struct {
		name     string
		compiler string
		flags    []string
		binutils bool // reads all of it
	}{
		{"dwarf 5", "g++", []string{"-gdwarf-5"}, true},
		{"dwarf 4", "g++", []string{"-gdwarf-4"}, true},
		{"dwarf 3", "g++", []string{"-gdwarf-3", "-gstrict-dwarf"}, true},
		{"64-bit dwarf", "g++", []string{"-gdwarf-5", "-gdwarf64"}, false},
		{"compressed", "g++", []string{"-gz=zlib"}, true},
		{"compressed gnu", "g++", []string{"-gz=zlib-gnu"}, false},
		{"no pie", "g++", []string{"-no-pie", "-fno-pie"}, true},
		{"function sections", "g++", []string{"-ffunction-sections", "-Wl,--gc-sections"}, true},
		{"type units", "g++", []string{"-fdebug-types-section"}, false},
		{"link-time optimized", "g++", []string{"-flto"}, true},
		{"O0", "g++", []string{"-O0"}, true},
		{"clang dwarf 5", "clang++", []string{"-gdwarf-5", "-Wno-unused-command-line-argument"}, false},
		{"clang dwarf 4", "clang++", []string{"-gdwarf-4", "-Wno-unused-command-line-argument"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			exe := testutil.BuildWith(t, c.compiler, []string{"testdata/elf/inline.cc"}, c.flags...)
			compare(t, New(openMapping, Options{}), exe, exe, textAddrs(t, exe, 1), c.binutils)
		})
	}
}

// clones matches what tells the copies of a C++ constructor or destructor
// apart. Where two stand at one address, everybody chooses another.
var clones = regexp.MustCompile(`([CD])[0-4]([EI])`)

// compare symbolizes addresses and asks the others about the same addresses of
// oracle, the file with the debug information.
func compare(t *testing.T, s *Symbolizer, file, oracle string, addrs []uint64, binutils bool) {
	t.Helper()
	defer s.Close()
	got := places(t, s, file, addrs)
	for _, err := range s.Errors() {
		t.Error(err)
	}
	diff(t, "llvm-symbolizer", addrs, got, askLLVM(t, oracle, addrs), exactly)
	if binutils {
		diff(t, "addr2line", addrs, got, askBinutils(t, oracle, addrs), func(p place) string {
			return strconv.Itoa(p.line)
		})
	}
}

// exactly shows all of a place. Where no line is known, LLVM gives the file that
// the symbol table names.
func exactly(p place) string {
	if p.line == 0 {
		p.file = ""
	}
	return fmt.Sprintf("%s %s:%d", clones.ReplaceAllString(p.name, "${1}0${2}"), p.file, p.line)
}

// diff compares what show prints of places.
func diff(t *testing.T, who string, addrs []uint64, got, want [][]place, show func(place) string) {
	t.Helper()
	print := func(ps []place) string {
		var b strings.Builder
		for _, p := range ps {
			fmt.Fprintf(&b, " %s", show(p))
		}
		return b.String()
	}
	bad, inlined := 0, 0
	for i := range addrs {
		if len(want[i]) > 1 {
			inlined++
		}
		if print(got[i]) != print(want[i]) {
			if bad++; bad <= 10 {
				t.Logf("%s: %#x:\n got %v\nwant %v", who, addrs[i], got[i], want[i])
			}
		}
	}
	t.Logf("%s: %d addresses, %d in inlined code, %d differ", who, len(addrs), inlined, bad)
	if bad > 0 {
		t.Fail()
	}
}
