// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/testutil"
)

func open(tb testing.TB, s sections) *Data {
	tb.Helper()
	d, err := Open(s.file(tb), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.Close() })
	return d
}

func TestSample(t *testing.T) {
	d := open(t, sample())
	outer := Frame{Name: "outer", File: "/src/a.c", Line: 10, Start: 9}
	late := outer
	late.Line = 12
	call := outer
	call.Line = 11
	inner := Frame{Linkage: "_Z5innerv", File: "/src/inc/b.h", Line: 3, Start: 2}
	for _, c := range []struct {
		pc   uint64
		want []Frame
	}{
		{0xfff, nil},
		{0x1000, []Frame{outer}},
		{0x101f, []Frame{outer}},
		{0x1020, []Frame{inner, call}},
		{0x102f, []Frame{inner, call}},
		{0x1030, []Frame{late}},
		{0x10ff, []Frame{late}},
		{0x1100, []Frame{{File: "/src/a.c", Line: 12}}}, // a line without a function
		{0x2000, nil},
	} {
		if diff := cmp.Diff(c.want, d.Lookup(c.pc)); diff != "" {
			t.Errorf("%#x (-want +got):\n%s", c.pc, diff)
		}
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// broken is a sample in which something is wrong.
type broken struct {
	s    sections
	want error // from Open or Err, nil if none is due
}

// brokenSamples are all of them, by what is wrong.
func brokenSamples() map[string]broken {
	all := make(map[string]broken)
	for _, some := range []map[string]broken{brokenHeaders(), brokenAbbrevs(), brokenEntries(), brokenLines()} {
		maps.Copy(all, some)
	}
	return all
}

func brokenHeaders() map[string]broken {
	base := sample()
	info := func(b []byte) sections { return base.with(".debug_info", b) }
	patched := func(off int, v byte) sections {
		b := bytes.Clone(base[".debug_info"])
		b[off] = v
		return info(b)
	}
	zeros := make([]byte, 64)
	corrupt := elfsym.ErrCorrupt
	return map[string]broken{
		"no sections":       {sections{}, elfsym.ErrNoSection},
		"half a header":     {info(base[".debug_info"][:8]), corrupt},
		"unit of no length": {info(zeros), corrupt},
		"unit of 2^32":      {info(append([]byte{0xee, 0xff, 0xff, 0xff}, zeros...)), corrupt},
		"reserved length":   {info(append([]byte{0xf0, 0xff, 0xff, 0xff}, zeros...)), corrupt},
		"unit of 2^63":      {info(append(bytes.Repeat([]byte{0xff}, 12), zeros...)), corrupt},
		"version 99":        {patched(4, 99), corrupt},
		"32-bit addresses":  {patched(10, 4), corrupt},
	}
}

func brokenAbbrevs() map[string]broken {
	base := sample()
	corrupt := elfsym.ErrCorrupt
	all := map[string]broken{"no abbreviations": {base.with(".debug_abbrev", nil), corrupt}}
	for name, form := range map[string]uint64{"of unknown form": 0x7f, "that is indirect": uint64(formIndirect)} {
		var a asm
		a.decl(cUnit, tagCompileUnit, 1, attrName, form)
		a.u8(0)
		all["attribute "+name] = broken{base.with(".debug_abbrev", a).with(".debug_info",
			unitOf(append([]byte{cUnit}, bytes.Repeat([]byte{byte(formIndirect)}, 40)...))), corrupt}
	}
	var endless asm
	for range maxAbbrevs + 10 {
		endless.decl(9, 1, 0)
	}
	all["too many abbreviations"] = broken{base.with(".debug_abbrev", append(endless, 0)), corrupt}
	var wide asm
	wide.uleb(cUnit)
	wide.uleb(tagCompileUnit)
	wide.u8(1)
	for range maxAbbrevAttrs + 1 {
		wide.u8(attrName, byte(formData1))
	}
	all["too many attributes"] = broken{base.with(".debug_abbrev", append(wide, 0, 0, 0)), corrupt}
	return all
}

func brokenEntries() map[string]broken {
	base := sample()
	corrupt := elfsym.ErrCorrupt
	info := func(add func(*asm)) sections {
		var e asm
		e.root()
		add(&e)
		return base.with(".debug_info", unitOf(e))
	}
	// inlinedFrom has a function into which one of the given origin is inlined.
	inlinedFrom := func(origin func(at int) uint32) sections {
		return info(func(e *asm) {
			e.fn("outer", 1, 0x1000, 0x100)
			e.inlined(origin(11+len(*e)), 0x1020, 0x10, 1, 1)
			e.u8(0, 0)
		})
	}
	ranged := func(name, ranges uint32) sections {
		return info(func(e *asm) { e.u8(cRanged); e.u32(name); e.u32(ranges) })
	}
	return map[string]broken{
		"unknown abbreviation":             {info(func(e *asm) { e.u8(77) }), corrupt},
		"origin of itself":                 {inlinedFrom(func(at int) uint32 { return uint32(at) }), corrupt},
		"origin outside the unit":          {inlinedFrom(func(int) uint32 { return 1 << 31 }), corrupt},
		"origin in the middle of an entry": {inlinedFrom(func(int) uint32 { return 12 }), corrupt},
		"endless inlining": {info(func(e *asm) {
			e.fn("outer", 1, 0x1000, 0x100)
			for range 10 * maxInlineDepth {
				e.inlined(11, 0x1020, 0x10, 1, 1)
			}
		}), nil},
		"unit that does not end its entries": {info(func(e *asm) {
			e.fn("outer", 1, 0x1000, 0x100)
			e.u8(cOther, cOther, cOther)
		}), nil},
		"name outside the strings": {
			ranged(1, 0).with(".debug_str", nil).with(".debug_ranges", rangesOf(0x20, 0x30)), corrupt,
		},
		"ranges outside their section": {ranged(1, 1<<30), corrupt},
		"ranges without an end":        {ranged(1, 0).with(".debug_ranges", bytes.Repeat([]byte{1}, 1600)), corrupt},
	}
}

func brokenLines() map[string]broken {
	base := sample()
	corrupt := elfsym.ErrCorrupt
	all := map[string]broken{"no line program": {base.with(".debug_line", nil), corrupt}}
	for name, ops := range map[string][]byte{
		"extended opcode of no length":  {0, 0, lnsCopy},
		"extended opcode of 2^21 bytes": {0, 0xff, 0xff, 0x7f, 2},
		"number without an end":         append([]byte{lnsAdvancePC}, bytes.Repeat([]byte{0xff}, 20)...),
	} {
		all[name] = broken{base.with(".debug_line", sampleLines(append(sampleOps(), ops...))), corrupt}
	}
	noRange := bytes.Clone(base[".debug_line"])
	noRange[14] = 0 // line_range, by which the opcodes are divided
	all["lines divided by zero"] = broken{base.with(".debug_line", noRange), corrupt}
	var many asm
	many.u8(1, 1, 1, 0xfb, 14, 1)
	many.u8(1, lnctPath, byte(formData1))
	many.uleb(1 << 40) // folders
	var v5 asm
	v5.u32(uint32(2 + 2 + 4 + len(many) + len(sampleOps())))
	v5.u16(5)
	v5.u8(8, 0)
	v5.u32(uint32(len(many)))
	v5.bytes(many)
	v5.bytes(sampleOps())
	all["2^40 folders"] = broken{base.with(".debug_line", v5), elfsym.ErrTooLarge}
	return all
}

func rangesOf(v ...uint64) []byte {
	var a asm
	for _, x := range append(v, 0, 0) {
		a.u64(x)
	}
	return a
}

func TestBrokenFiles(t *testing.T) {
	for name, c := range brokenSamples() {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			d, err := Open(c.s.file(t), nil)
			if err == nil {
				for _, pc := range []uint64{0, 0xfff, 0x1000, 0x1020, 0x1028, 0x1200, 1<<64 - 1} {
					d.Lookup(pc)
				}
				err = d.Err()
				d.Close()
			}
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestBudget has a file whose lookups read more than is allowed.
func TestBudget(t *testing.T) {
	d := open(t, sample())
	d.work = 4096
	for range 100 {
		d.names = map[uint64]funcName{}
		d.Lookup(0x1020)
	}
	if err := d.Err(); !errors.Is(err, elfsym.ErrTooLarge) {
		t.Errorf("got error %v, want ErrTooLarge", err)
	}
	if got := d.Lookup(0x1020); got != nil {
		t.Errorf("found %v beyond the budget", got)
	}
}

// TestLongProgram looks up each of the rows between the marks of a program.
func TestLongProgram(t *testing.T) {
	var o asm
	const rows = 5*rowsPerMark + 7
	o.u8(0, 9, lneSetAddress)
	o.u64(0x1000)
	for range rows {
		o.u8(lnsCopy, lnsAdvancePC, 2, lnsAdvanceLine, 1)
	}
	o.u8(0, 1, lneEndSequence)
	d := open(t, sample().with(".debug_line", sampleLines(o)))
	p, err := d.readProgram(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.marks) != 6 {
		t.Errorf("%d marks, want 6", len(p.marks))
	}
	for i := range uint64(rows) {
		for _, pc := range []uint64{0x1000 + 2*i, 0x1001 + 2*i} {
			if r, ok := d.findRow(p, pc); !ok || r.line != int64(i)+1 {
				t.Fatalf("%#x is line %d (%v), want %d", pc, r.line, ok, i+1)
			}
		}
	}
	if r, ok := d.findRow(p, 0x1000+2*rows); ok {
		t.Errorf("behind the program there is line %d", r.line)
	}
}

// TestDiscardedSequence has code that the linker threw away, at address 0.
func TestDiscardedSequence(t *testing.T) {
	var o asm
	o.u8(0, 9, lneSetAddress)
	o.u64(0)
	o.u8(lnsCopy, lnsAdvancePC, 0xff, 0x7f, 0, 1, lneEndSequence)
	d := open(t, sample().with(".debug_line", sampleLines(append(o, sampleOps()...))))
	p, err := d.readProgram(0)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := d.findRow(p, 0x10); ok {
		t.Errorf("found row %v of discarded code", r)
	}
	if r, ok := d.findRow(p, 0x1000); !ok || r.line != 10 {
		t.Errorf("found row %v, %v; want line 10", r, ok)
	}
}

func TestIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var x index
		for i := range 1 + r.IntN(50) {
			lo := 1 + uint64(r.IntN(200))
			x.add(lo, lo+uint64(r.IntN(60)), uint32(i))
		}
		x.sort()
		for pc := uint64(0); pc < 300; pc++ {
			var want uint64
			for _, iv := range x {
				if iv.lo <= pc && pc < iv.hi {
					want = max(want, iv.lo)
				}
			}
			got, ok := x.find(pc)
			if ok != (want != 0) || ok && got.lo != want {
				t.Fatalf("%d is in %+v (%v), want one that starts at %d", pc, got, ok, want)
			}
		}
	}
}

// TestSpill decompresses into a file that has no name.
func TestSpill(t *testing.T) {
	testutil.NoLeakedFDs(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	exe := testutil.BuildC(t, []string{"testdata/elf/symbols.c"}, "-shared", "-fPIC")
	plain, err := openELF(t, exe).Section(".debug_info")
	if err != nil {
		t.Fatal(err)
	}
	packed := exe + ".packed"
	cmd := exec.Command(testutil.RequireTool(t, "objcopy"), "--compress-debug-sections=zlib", exe, packed)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running %s: %v\n%s", cmd, err, out)
	}
	f := openELF(t, packed)
	var work int64 = baseWork
	s := &source{name: ".debug_info", work: &work}
	c, err := s.spill(f, ".debug_info", uint64(len(plain)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, s.size)
	if err := s.read(got, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, plain) {
		t.Error("content differs")
	}
	left, err := filepath.Glob(filepath.Join(dir, "unfreed-debug-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func openELF(tb testing.TB, path string) *elfsym.File {
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
	f, err := elfsym.Open(r, st.Size())
	if err != nil {
		tb.Fatal(err)
	}
	return f
}
