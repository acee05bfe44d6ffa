// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

var fdeLine = regexp.MustCompile(`FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

// readFDEs asks readelf for the ranges of all function descriptors, at most n.
func readFDEs(tb testing.TB, path string, n int) [][2]uint64 {
	tb.Helper()
	cmd := exec.Command(testutil.RequireTool(tb, "readelf"), "-W", "--debug-dump=frames", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var ranges [][2]uint64
	for s := bufio.NewScanner(out); s.Scan() && len(ranges) < n; {
		if m := fdeLine.FindStringSubmatch(s.Text()); m != nil {
			lo, _ := strconv.ParseUint(m[1], 16, 64)
			hi, _ := strconv.ParseUint(m[2], 16, 64)
			ranges = append(ranges, [2]uint64{lo, hi})
		}
	}
	if len(ranges) == 0 {
		tb.Fatalf("%s has no function descriptors", path)
	}
	return ranges
}

func TestFunctionRange(t *testing.T) {
	cut := buildSymbols(t, "-s")
	dropSectionTable(t, cut)
	files := []string{buildSymbols(t), cut, buildSymbols(t, "-fno-asynchronous-unwind-tables", "-fexceptions")}
	for _, path := range append(files, systemFiles(t)...) {
		if filepath.Base(path) == "elfsym.test" {
			continue // the Go linker writes no .eh_frame
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := openFile(t, path)
			from := path
			if len(f.sections) == 0 {
				from = files[0] // readelf needs sections
			}
			if !f.HasFunctionRanges() {
				t.Fatal("has no function ranges")
			}
			for _, want := range readFDEs(t, from, 20000) {
				if want[0] == want[1] {
					continue
				}
				for _, v := range []uint64{want[0], (want[0] + want[1]) / 2, want[1] - 1} {
					lo, hi, ok := f.FunctionRange(v)
					if !ok || lo != want[0] || hi != want[1] {
						t.Fatalf("range of %#x is %#x-%#x (%v), want %#x-%#x", v, lo, hi, ok, want[0], want[1])
					}
				}
			}
			for _, v := range []uint64{0, 1 << 62} {
				if lo, hi, ok := f.FunctionRange(v); ok {
					t.Errorf("range of %#x is %#x-%#x, want none", v, lo, hi)
				}
			}
		})
	}
}

// TestFunctionRangeOfColdPart is what the range is for: the part of a function
// that stands elsewhere and has no symbol in a stripped file.
func TestFunctionRangeOfColdPart(t *testing.T) {
	whole := openFile(t, buildSymbols(t))
	syms, err := whole.Lookup("partially_cold.cold")
	if err != nil {
		t.Fatal(err)
	}
	cold, ok := syms["partially_cold.cold"]
	if !ok {
		t.Fatal("the compiler did not split partially_cold")
	}
	f := openFile(t, buildSymbols(t, "-s"))
	lo, hi, ok := f.FunctionRange(cold.Value + 1)
	if !ok || lo != cold.Value || hi != cold.Value+cold.Size {
		t.Errorf("range is %#x-%#x (%v), want %#x-%#x", lo, hi, ok, cold.Value, cold.Value+cold.Size)
	}
}

func TestFunctionRangeOfDebugFile(t *testing.T) {
	lib := buildSymbols(t)
	run(t, filepath.Dir(lib), "objcopy", "--only-keep-debug", lib, "debug")
	f := openFile(t, filepath.Join(filepath.Dir(lib), "debug"))
	if f.HasFunctionRanges() {
		t.Error("a debug file claims to have function ranges")
	}
}

func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		enc  byte
		in   []byte
		want uint64
		bad  bool
	}{
		{0x00, []byte{1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201, false},
		{0x01, []byte{0xe5, 0x8e, 0x26}, 624485, false},
		{0x02, []byte{0xff, 0xff}, 0xffff, false},
		{0x09, []byte{0x7f}, ^uint64(0), false},
		{0x0a, []byte{0xfe, 0xff}, ^uint64(1), false},
		{0x1b, []byte{0xf0, 0xff, 0xff, 0xff}, 0x1000 - 16, false},
		{0x3b, []byte{0x10, 0, 0, 0}, 0x2010, false},
		{0xff, nil, 0, false},
		{0x9b, []byte{0, 0, 0, 0}, 0, true}, // indirect
		{0x03, []byte{1, 2, 3}, 0, true},
		{0x0f, []byte{1, 2, 3}, 0, true},
		{0x01, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}, 0, true},
	} {
		d := encDecoder{b: c.in, vaddr: 0x1000, datarel: 0x2000}
		got := d.value(c.enc)
		if d.bad != c.bad || !c.bad && got != c.want {
			t.Errorf("encoding %#x of % x is %#x (bad %v), want %#x (bad %v)", c.enc, c.in, got, d.bad, c.want, c.bad)
		}
	}
}
