// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
)

func extractBytes(data []byte) (*Table, error) {
	return ExtractAt(bytes.NewReader(data), int64(len(data)))
}

// allocated returns the bytes that f allocates, freed ones included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestExtractMade(t *testing.T) {
	var f frames
	cie := f.cie()
	// push rbp; push rbx; body; pop rbx; pop rbp; ret
	f.fde(cie, 0x1000, 0x20, 0x41, 0x0e, 16, 0x41, 0x0e, 24, 0x50, 0x0e, 16, 0x41, 0x0e, 8)
	f.fde(cie, 0x1020, 0x10, 0)
	f.fde(cie, 0x3000, 0x10, 0x41, 0x0e, 16)
	table, err := extractBytes(testELF{textAddr: 0x1000, textSize: 0x3000,
		sections: []testSection{{".eh_frame", 0x8000, f.end()}}}.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := table.validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr  uint64
		param int32 // 0: invalid
	}{
		{0, 0}, {0xfff, 0},
		{0x1000, 8}, {0x1001, 16}, {0x1002, 24}, {0x1011, 24}, {0x1012, 16}, {0x1013, 8},
		{0x101f, 8}, {0x1020, 8}, {0x102f, 8}, {0x1030, 0}, {0x2fff, 0},
		{0x3000, 8}, {0x3001, 16}, {0x300f, 16}, {0x3010, 0}, {0x4000, 0}, {1 << 40, 0},
	} {
		want := Info{BaseReg: RegSP, Param: c.param}
		if c.param == 0 {
			want = invalid
		}
		if got := lookup(table, c.addr); got != want {
			t.Errorf("at %#x: got %+v, want %+v", c.addr, got, want)
		}
	}
	// 0x1000 takes 0x1001 in, 0x1002 stands alone, 0x1012 takes 0x1013 in and
	// goes on in the next function; the invalid rows stand around them.
	if len(table.Rows) != 1+4+2 {
		t.Errorf("%d rows: %#x", len(table.Rows), table.Rows)
	}
}

func TestExtractRefusesLimits(t *testing.T) {
	var one frames
	one.fde(one.cie(), 0x1000, 0x10, 0)
	good := testSection{".eh_frame", 0x8000, one.end()}
	for _, c := range []struct {
		name string
		elf  testELF
		want error
	}{
		{"good", testELF{textAddr: 0x1000, textSize: 0x1000, sections: []testSection{good}}, nil},
		{"no sections", testELF{textAddr: 0x1000, textSize: 0x1000}, ErrNoRows},
		{"rows outside the text", testELF{textAddr: 0x2000, textSize: 0x1000, sections: []testSection{good}}, ErrNoRows},
		{"text beyond 4 GiB", testELF{textAddr: 1 << 40, textSize: 0x1000, sections: []testSection{good}}, ErrTooLarge},
		{"text that wraps", testELF{textAddr: 0x1000, textSize: 1<<64 - 1, sections: []testSection{good}}, ErrCorrupt},
		{"large .eh_frame", testELF{textAddr: 0x1000, textSize: 0x1000,
			sections: []testSection{{".eh_frame", 0x8000, make([]byte, maxFrames+1)}}}, ErrTooLarge},
		{"riscv", testELF{machine: elf.EM_RISCV, textAddr: 0x1000, textSize: 0x1000, sections: []testSection{good}}, ErrUnsupported},
		{"unknown CIE version", testELF{textAddr: 0x1000, textSize: 0x1000,
			sections: []testSection{{".eh_frame", 0x8000, words(12, 0, 0x77, 0)}}}, ErrCorrupt},
		{"odd .debug_frame beside a good .eh_frame", testELF{textAddr: 0x1000, textSize: 0x1000,
			sections: []testSection{good, {".debug_frame", 0, words(12, 0xffffffff, 0x77, 0)}}}, nil},
		{"odd .gopclntab beside a good .eh_frame", testELF{textAddr: 0x1000, textSize: 0x1000,
			sections: []testSection{good, {".gopclntab", 0, words(0xfffffffb, 0, 0, 0)}}}, nil},
	} {
		if _, err := extractBytes(c.elf.bytes()); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// 60,000 sections that all name one string of 1 MB would be 60 GB of names.
func TestExtractManyNames(t *testing.T) {
	e := testELF{textAddr: 0x1000, textSize: 0x1000, names: 1 << 20}
	for range 60000 {
		e.sections = append(e.sections, testSection{name: ""})
	}
	data := e.bytes()
	shoff := binary.LittleEndian.Uint64(data[40:])
	for i := range e.sections {
		clear(data[shoff+64*uint64(i+1):][:4])
	}
	n := allocated(func() {
		if _, err := extractBytes(data); !errors.Is(err, ErrNoRows) {
			t.Errorf("got %v, want %v", err, ErrNoRows)
		}
	})
	if n > 64<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

// goTableOf makes a Go function table in the form of Go 1.20 of n functions
// which all name one stack pointer table.
func goTableOf(n int, pcsp []byte) []byte {
	const funcSize = 4 + goFuncMin
	var offs [6]uint64 // funcname, cu, filetab, pctab, functab, and the end
	head := goFixedHeader + 8*8
	cuts := []int{1, 4, 4, len(pcsp) + 1}
	offs[0] = uint64(head)
	for i, size := range cuts {
		offs[i+1] = offs[i] + uint64(size)
	}
	b := words(goMagic120, 0x08010000)
	for _, w := range []uint64{uint64(n), 1, 0x1000, offs[0], offs[1], offs[2], offs[3], offs[4]} {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	b = append(b, make([]byte, 1+4+4+1)...) // pctab starts with an unused byte
	b = append(b, pcsp...)
	functab := 8 * (n + 1)
	for i := range n + 1 {
		b = append(b, words(uint32(16*i), uint32(functab+funcSize*i))...)
	}
	for i := range n + 1 {
		b = append(b, words(uint32(16*i), 0, 0, 0, 1, 0, 0, 0, 0)...)
	}
	return b
}

func TestExtractGoTable(t *testing.T) {
	// 1,000 functions of 2 steps are fine.
	ok := goTableOf(1000, []byte{2, 1, 2, 1, 0})
	if err := checkGoTable(ok); err != nil {
		t.Error(err)
	}
	// 10,000 functions that share a table of 65,536 steps would make 655
	// million deltas.
	steps := append(bytes.Repeat([]byte{2, 1}, 1<<16), 0)
	bomb := goTableOf(10000, steps)
	if err := checkGoTable(bomb); !errors.Is(err, ErrTooLarge) {
		t.Errorf("many steps: got %v, want %v", err, ErrTooLarge)
	}
	// So would as many whose one step is a number of 1 MB.
	if err := checkGoTable(goTableOf(10000, append(bytes.Repeat([]byte{0x80}, 1<<20), 0))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long numbers: got %v, want %v", err, ErrTooLarge)
	}
	n := allocated(func() {
		e := testELF{textAddr: 0x1000, textSize: 1 << 30, sections: []testSection{{".gopclntab", 0x8000, bomb}}}
		if _, err := extractBytes(e.bytes()); !errors.Is(err, ErrTooLarge) {
			t.Errorf("in a file: got %v, want %v", err, ErrTooLarge)
		}
	})
	if n > 64<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

// The densest .eh_frame, of which three bytes make a delta, sets the memory
// that maxFrames stands for.
func TestExtractDenseFrames(t *testing.T) {
	var f frames
	cie := f.cie()
	ops := bytes.Repeat([]byte{0x41, 0x0e, 16, 0x41, 0x0e, 32}, 1<<14)
	for i := range uint64(20) {
		f.fde(cie, 0x1000+i<<16, 1<<16, ops...)
	}
	e := testELF{textAddr: 0x1000, textSize: 1 << 24, sections: []testSection{{".eh_frame", 0x8000, f.end()}}}
	data := e.bytes()
	s, err := newSource(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.load("")
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.intervals()
	if err != nil {
		t.Fatal(err)
	}
	live := 0
	for _, b := range d.Blocks {
		live += 48 + 16*cap(b.Deltas)
	}
	if perByte := float64(live) / float64(len(f.b)); perByte > 8 {
		t.Errorf("%.1f bytes of blocks a byte of .eh_frame", perByte)
	}
	if _, err := extractBytes(data); err != nil {
		t.Error(err)
	}
}

// FDEs that use many large CIEs in turn make the extractor parse each anew.
func TestExtractManyCIEs(t *testing.T) {
	var f frames
	var cies []int
	for range 200 {
		cies = append(cies, f.cie(make([]byte, 1<<14)...))
	}
	for i := range 2000 {
		f.fde(cies[i%len(cies)], 0x1000+16*uint64(i), 16, 0)
	}
	e := testELF{textAddr: 0x1000, textSize: 1 << 30, sections: []testSection{{".eh_frame", 0x8000, f.end()}}}
	data := e.bytes()
	s, err := newSource(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.load("")
	if err != nil {
		t.Fatal(err)
	}
	m.served = maxServed - 10<<20 // as after 40 times as many
	if _, err := m.table(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v after %d bytes, want %v", err, m.served, ErrTooLarge)
	}
}

// Any damage to a file gives an error or a table that is in range.
func TestExtractDamaged(t *testing.T) {
	for _, name := range []string{"libc", "go"} {
		whole, err := os.ReadFile(realFile(t, name))
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 2))
		s, err := newSource(bytes.NewReader(whole), int64(len(whole)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			data := bytes.Clone(whole)
			if i%4 == 0 {
				data = data[:random.IntN(len(data))]
			}
			for range 1 + random.IntN(20) {
				at := int64(random.IntN(len(data)))
				if x := s.sections[random.IntN(len(s.sections))]; i%2 == 0 && x.off+x.size < int64(len(data)) {
					at = x.off + random.Int64N(min(x.size, 1<<uint(2+random.IntN(20))))
				} else if i%3 == 0 {
					at %= 4096 // headers
				}
				data[at] = byte(random.Uint32())
			}
			table, err := extractBytes(data)
			if err == nil {
				err = table.validate()
				if err != nil {
					t.Errorf("%s, damage %d: %v", name, i, err)
				}
			}
		}
	}
}

// brokenReader fails with an error that is not the file's end.
type brokenReader struct {
	io.ReaderAt
	from int64
}

func (r brokenReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.from {
		return 0, errBroken
	}
	return r.ReaderAt.ReadAt(p, off)
}

var errBroken = errors.New("input/output error")

func TestExtractReportsReadErrors(t *testing.T) {
	data, err := os.ReadFile(realFile(t, "libc"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{0, 64, s.sections[0].off} {
		_, err := ExtractAt(brokenReader{bytes.NewReader(data), from}, int64(len(data)))
		if !errors.Is(err, errBroken) {
			t.Errorf("unreadable from %d: got %v", from, err)
		}
	}
}
