// SPDX-License-Identifier: Apache-2.0

package python

import (
	"debug/elf"
	"encoding/binary"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// hostile is a target's memory that repeats some bytes for ever, with holes:
// every pointer leads somewhere, and often back.
type hostile []byte

func (h hostile) ReadAt(b []byte, addr int64) (int, error) {
	if len(h) == 0 || addr < 0 || addr>>12&7 == 7 {
		return 0, errListBroken
	}
	for i := range b {
		b[i] = h[(uint64(addr)+uint64(i))%uint64(len(h))]
	}
	return len(b), nil
}

func fuzzLayout(minor uint8) *Layout {
	l := layouts[minMinor+minor%(maxMinor-minMinor+1)]
	return &l
}

func FuzzDecodeCode(f *testing.F) {
	l := layouts[12]
	f.Add(uint8(3), int32(1), strBytes(&l, "naïve.py"), strBytes(&l, "f"), bytesObject(&l, []byte{0x80, 0, 0xf0, 2, 1, 0, 0}), []byte(nil), int64(0))
	f.Add(uint8(0), int32(-1), strBytes(&l, "漢"), []byte("short"), []byte{}, []byte("\x01\x00\x10\x00\x00\x00\x00"), int64(4))
	f.Add(uint8(1), int32(math.MaxInt32), strBytes(&l, "x"), strBytes(&l, "y"), bytesObject(&l, []byte{255, 127, 255, 127}), []byte{1}, int64(-2))
	f.Fuzz(func(t *testing.T, minor uint8, first int32, file, name, table, mem []byte, off int64) {
		l := fuzzLayout(minor)
		rec := &CodeRecord{FirstLine: first, FirstTraceable: first, Filename: file, Qualname: name, LineTable: table}
		if len(mem) > 0 {
			for i := range rec.Ident {
				b := make([]byte, 8)
				hostile(mem).ReadAt(b, int64(l.CodeIdent)+int64(8*i))
				rec.Ident[i] = binary.LittleEndian.Uint64(b)
			}
		}
		c, err := DecodeCode(l, rec, hostile(mem))
		if err != nil {
			return
		}
		if !utf8.ValidString(c.File) || !utf8.ValidString(c.Name) {
			t.Errorf("file %q or name %q is not UTF-8", c.File, c.Name)
		}
		if n := 4 * maxStringBytes; len(c.File) > n || len(c.Name) > n {
			t.Errorf("strings of %d and %d bytes", len(c.File), len(c.Name))
		}
		for _, o := range []int64{off, 0, 2, -1, math.MinInt64, math.MaxInt64} {
			if line := c.Line(o); line < 0 {
				t.Errorf("offset %d is of line %d", o, line)
			}
			c.Started(o)
		}
	})
}

func FuzzParseLines(f *testing.F) {
	f.Add(uint8(1), []byte{0, 1, 4, 2, 255, 0x80}, int32(10))
	f.Add(uint8(2), []byte{2, 0, 4, 0x80, 2, 3}, int32(10))
	f.Add(uint8(3), []byte{0x81, 0, 0xd8, 0, 0, 0xf8, 0xe8, 3, 0xf0, 0x48, 1, 0, 0, 0}, int32(10))
	f.Fuzz(func(t *testing.T, format uint8, table []byte, first int32) {
		lines := parseLines(LineFormat(format%4), table, first, true)
		for i := 1; i < len(lines.spans); i++ {
			if lines.spans[i-1].start >= lines.spans[i].start {
				t.Fatalf("spans are not sorted: %v", lines.spans)
			}
		}
		for off := range int64(64) {
			if lines.at(off) < 0 {
				t.Errorf("offset %d is of line %d", off, lines.at(off))
			}
		}
	})
}

func FuzzReadStack(f *testing.F) {
	f.Add(uint8(3), []byte("\x08\x00\x00\x00\x00\x00\x00\x00\x10"), uint64(8))
	f.Add(uint8(0), []byte{0}, uint64(0))
	f.Add(uint8(5), []byte{1, 2, 3}, uint64(1))
	f.Fuzz(func(t *testing.T, minor uint8, mem []byte, id uint64) {
		r := &Runtime{Layout: *fuzzLayout(minor), RuntimeAddr: 0x1000}
		frames, _ := ReadStack(hostile(mem), r, id)
		if len(frames) > maxChain {
			t.Errorf("%d frames", len(frames))
		}
		// Past the list of threads, which random bytes seldom pass for.
		frames, _ = r.readFrames(hostile(mem), Thread{Address: id})
		Merge(&r.Layout, nil, frames, MergeOptions{})
		r.checkFrames(hostile(mem), []Thread{{Address: id}})
		checkMembers(hostile(mem), id, codeMembers(r))
	})
}

func FuzzDebugOffsets(f *testing.F) {
	for minor, w := range debugOffsets {
		b := make([]byte, 8*w.size)
		copy(b, debugCookie)
		put(b, 8, uint64(3)<<24|uint64(minor)<<16|0xf0)
		f.Add(minor, b)
	}
	f.Fuzz(func(t *testing.T, minor uint8, mem []byte) {
		minor = firstDebugOffsets + minor%(maxMinor-firstDebugOffsets+1)
		r := &Runtime{Version: Version{Major: 3, Minor: minor, Level: 0xf}, Layout: layouts[minor]}
		if r.readDebugOffsets(hostile(mem)) != nil {
			return
		}
		l := &r.Layout
		if l.FrameSize > MaxFrameSize || l.FrameInstr+8 > l.FrameSize || uint32(l.FrameOwner) >= l.FrameSize {
			t.Errorf("FrameSize = %d of %+v", l.FrameSize, l)
		}
		if l.CodeIdent > l.CodeFilename || l.CodeFilename+8 > l.CodeIdent+IdentSize {
			t.Errorf("CodeIdent = %d of %+v", l.CodeIdent, l)
		}
	})
}

func FuzzDisassemble(f *testing.F) {
	f.Add([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0xeb, 0x10, 0x48, 0x8d, 0x1d, 0x10, 0, 0, 0}, uint64(0x1000))
	f.Add([]byte{0x00, 0x00, 0x00, 0x14, 0xa0, 0x0a, 0x00, 0x90}, ^uint64(0))
	f.Fuzz(func(t *testing.T, code []byte, vaddr uint64) {
		for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64, elf.EM_RISCV} {
			directJumps(m, code, vaddr)
			dataRefs(m, code, vaddr)
		}
	})
}

func FuzzVersion(f *testing.F) {
	for _, s := range []string{"3.9.18", "3.14.0rc1+ (main, Oct 1 2026)", "2.7", "3.999.1", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, ok := parseVersion(text)
		if ok && (v.Major < 2 || v.Major > 4) {
			t.Errorf("%q is version %v", text, v)
		}
	})
}

// FuzzMerge checks that no frame is lost or invented, however little the stacks
// fit.
func FuzzMerge(f *testing.F) {
	f.Add(uint8(3), []byte{0, 1, 2, 1, 0}, []byte{2, 2, 1, 2, 1})
	f.Add(uint8(0), []byte{1, 1, 1}, []byte{1})
	f.Fuzz(func(t *testing.T, minor uint8, native, py []byte) {
		l := fuzzLayout(minor)
		var ns []NativeFrame
		for _, b := range native {
			ns = append(ns, NativeFrame{Frames: make([]alloc.Frame, 1), Eval: b&3 == 1, Interpreter: b&3 != 0})
		}
		var ps []Frame
		want := 0
		for _, b := range py {
			p := Frame{Entry: l.FrameOwner < 0 || b&3 == 1, Code: &Code{}}
			if !(p.Entry && l.EntryIsShim) {
				want++
			}
			ps = append(ps, p)
		}
		got := Merge(l, ns, ps, MergeOptions{KeepInterpreter: true})
		if len(got.Frames) != len(ns)+want {
			t.Errorf("%d native and %d Python frames became %d", len(ns), want, len(got.Frames))
		}
		Merge(l, ns, ps, MergeOptions{DropNative: true})
	})
}
