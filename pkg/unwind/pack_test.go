// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

func TestInfoLayout(t *testing.T) {
	var i Info
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"size", unsafe.Sizeof(i), 12},
		{"Flags", unsafe.Offsetof(i.Flags), 0},
		{"BaseReg", unsafe.Offsetof(i.BaseReg), 1},
		{"AuxBaseReg", unsafe.Offsetof(i.AuxBaseReg), 2},
		{"MergeOpcode", unsafe.Offsetof(i.MergeOpcode), 3},
		{"Param", unsafe.Offsetof(i.Param), 4},
		{"AuxParam", unsafe.Offsetof(i.AuxParam), 8},
		{"the extractor's size", unsafe.Sizeof(stackdeltatypes.UnwindInfo{}), 12},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
}

func TestInfoAt(t *testing.T) {
	for _, c := range []struct {
		merge uint8
		delta uint32
		want  int32
	}{
		{0, 0, 16}, {0, 4096, 16},
		{1, 0, 16}, {1, 1, 24}, {1, 2, 24}, {1, 4096, 24},
		{2, 1, 16}, {2, 2, 24},
		{1 | MergeNegative, 0, 16}, {1 | MergeNegative, 1, 8}, {2 | MergeNegative, 1, 16}, {2 | MergeNegative, 4096, 8},
	} {
		in := Info{BaseReg: RegSP, MergeOpcode: c.merge, Param: 16}
		if got, want := in.At(c.delta), (Info{BaseReg: RegSP, Param: c.want}); got != want {
			t.Errorf("merge %#x at %d: got %+v, want %+v", c.merge, c.delta, got, want)
		}
	}
}

// A push at the end of a page must not be merged with what follows in the next,
// where Lookup does not know the distance.
func TestPackMergesWithinPage(t *testing.T) {
	for _, c := range []struct {
		addr   uint64
		second uint32
		merged bool
	}{
		{0x1000, 1, true}, {0x1ffe, 1, true}, {0x1ffe, 2, true}, {0x1fff, 1, true}, {0x1fff, 2, false}, {0x1000, 3, false},
	} {
		sp := stackdeltatypes.UnwindInfo{BaseReg: RegSP, Param: 8}
		pushed := sp
		pushed.Param = 16
		d := &stackdeltatypes.IntervalData{Blocks: []*stackdeltatypes.BasicBlock{{
			Start: c.addr, End: c.addr + 64,
			Deltas: stackdeltatypes.StackDeltaArray{{Offset: 0, Info: sp}, {Offset: c.second, Info: pushed}},
		}}}
		text := []span{{0x1000, 0x9000}}
		o := newOracle(d, text)
		table, err := pack(d, text)
		if err != nil {
			t.Fatal(err)
		}
		if merged := len(table.Rows) == 3; merged != c.merged {
			t.Errorf("%#x and %d bytes on: merged is %v", c.addr, c.second, merged)
		}
		for addr := c.addr; addr < c.addr+100; addr++ {
			if want, ok := o.at(addr); ok && lookup(table, addr) != want {
				t.Errorf("%#x and %d bytes on: at %#x %+v, want %+v", c.addr, c.second, addr, lookup(table, addr), want)
			}
		}
	}
}

// blocksOf makes blocks of any bytes: overlapping, out of order, with rows out
// of order, with signals, around a page boundary.
func blocksOf(data []byte) (*stackdeltatypes.IntervalData, []span) {
	d := &stackdeltatypes.IntervalData{}
	next := func() (b byte) {
		if len(data) > 0 {
			b, data = data[0], data[1:]
		}
		return b
	}
	addr := uint64(0xf80)
	text := []span{{0xf80 + uint64(next()%8), 0x1040}, {0x1048, 0x1048 + uint64(next())}}
	for len(data) > 0 {
		addr += uint64(next() % 40)
		b := &stackdeltatypes.BasicBlock{Start: addr - uint64(next()%8), End: addr + uint64(next()%48)}
		off := uint32(0)
		for n := next() % 6; n > 0; n-- {
			info := stackdeltatypes.UnwindInfo{BaseReg: RegSP, Param: int32(next()%5) * 8}
			switch kind := next(); {
			case kind == 255:
				info = stackdeltatypes.UnwindInfoSignal
			case kind == 254:
				info = stackdeltatypes.UnwindInfoInvalid
			case kind == 253:
				off -= 2
			case kind > 200:
				info.Flags = FlagDerefCFA
			}
			b.Deltas = append(b.Deltas, stackdeltatypes.StackDelta{Offset: off, Info: info})
			off += uint32(next() % 5)
		}
		d.NumDeltas += uint32(len(b.Deltas))
		d.Blocks = append(d.Blocks, b)
	}
	return d, text
}

func checkPack(t *testing.T, data []byte) {
	d, text := blocksOf(data)
	o := newOracle(d, text)
	table, err := pack(d, text)
	if errors.Is(err, ErrNoRows) {
		table = &Table{}
	} else if err != nil {
		t.Fatal(err)
	} else if err := table.validate(); err != nil {
		t.Fatal(err)
	}
	for addr := uint64(0xf00); addr < 0x1300; addr++ {
		if want, ok := o.at(addr); ok && lookup(table, addr) != want {
			t.Fatalf("at %#x: got %+v, want %+v", addr, lookup(table, addr), want)
		}
	}
}

func TestPackRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		data := make([]byte, random.IntN(200))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		checkPack(t, data)
	}
}

func FuzzPack(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 30, 2, 1, 0, 1, 2, 0, 3})
	f.Add([]byte{4, 200, 39, 0, 40, 3, 1, 255, 1, 2, 253, 3, 1, 254, 0, 9, 0, 40, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		checkPack(t, data[:min(len(data), 400)])
	})
}

func FuzzExtract(f *testing.F) {
	var fr frames
	cie := fr.cie()
	fr.fde(cie, 0x1000, 0x20, 0x41, 0x0e, 16, 0x41, 0x0e, 24, 0x0a, 0x50, 0x0e, 16, 0x0b, 0x41, 0x0e, 8)
	fr.fde(fr.cie(), 0x1020, 9, 0x0f, 2, 0x77, 8)
	f.Add(testELF{textAddr: 0x1000, textSize: 0x3000, sections: []testSection{
		{".eh_frame", 0x8000, fr.end()}, {".gopclntab", 0x9000, goTableOf(3, []byte{2, 1, 2, 1, 0})}}}.bytes())
	f.Add(selfVDSO(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := extractBytes(data)
		if err != nil {
			return
		}
		if err := table.validate(); err != nil {
			t.Fatal(err)
		}
		end := uint64(len(table.Pages)+1) << pageBits
		for addr := uint64(0); addr < end; addr += 1 + end/1000 {
			lookup(table, addr)
		}
	})
}
