// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"sort"
)

const (
	// fdeEntry is an entry of the search table: start and FDE, 4 bytes each.
	fdeEntry = 8
	// fdeBlock is how many entries are read at once at the end of a search.
	fdeBlock = 512
	// maxCIE is how much is read of a common information entry. Compilers
	// write some 30 bytes.
	maxCIE = 256
	// maxFDEHead is what precedes the instructions of an FDE: a 64-bit length,
	// the distance to the CIE, and two addresses.
	maxFDEHead = 12 + 8 + 8 + 8
	// tableEnc is the one encoding of the search table that linkers write:
	// DW_EH_PE_datarel | DW_EH_PE_sdata4.
	tableEnc = 0x3b
)

// frameIndex is the sorted search table of .eh_frame_hdr.
type frameIndex struct {
	base    uint64 // virtual address of .eh_frame_hdr
	entries region // in the file
}

func (x *frameIndex) count() int { return int(x.entries.size / fdeEntry) }

// openFrameIndex finds the search table. It returns nil if the file has none,
// or one of a kind that no linker writes.
func (f *File) openFrameIndex() *frameIndex {
	p, ok := f.frameHeader()
	if !ok || p.filesz < 4 {
		return nil
	}
	b, err := f.read(p.off, min(p.filesz, 64), 64)
	if err != nil || b[0] != 1 || b[3] != tableEnc {
		return nil
	}
	d := encDecoder{b: b, vaddr: p.vaddr, pos: 4, datarel: p.vaddr}
	d.value(b[1]) // address of .eh_frame, not needed
	n := d.value(b[2])
	if d.bad {
		return nil
	}
	size := p.filesz - uint64(d.pos)
	if n > size/fdeEntry {
		return nil
	}
	return &frameIndex{base: p.vaddr, entries: region{p.off + uint64(d.pos), n * fdeEntry}}
}

// frameHeader returns where .eh_frame_hdr lies. The segment is asked only where
// there are no sections: in a file of separate debug information it points at
// other content.
func (f *File) frameHeader() (prog, bool) {
	if len(f.sections) == 0 {
		p, ok := f.prog(elf.PT_GNU_EH_FRAME)
		return p, ok && f.span(p.off, p.filesz)
	}
	s, err := f.sectionNamed(".eh_frame_hdr")
	if err != nil || !f.span(s.off, s.size) {
		return prog{}, false
	}
	return prog{off: s.off, vaddr: s.addr, filesz: s.size}, true
}

// HasFunctionRanges reports whether [File.FunctionRange] can know anything.
// Files of separate debug information cannot: their .eh_frame is empty.
func (f *File) HasFunctionRanges() bool { return f.frames() != nil }

// FunctionRange returns the range of virtual addresses [start, end) of the
// frame description entry that covers v. That is a function, or a part of one
// that the compiler put elsewhere (the ".cold" part), whether or not it has a
// symbol. It reports false where there is no entry for v.
func (f *File) FunctionRange(v uint64) (start, end uint64, ok bool) {
	x := f.frames()
	if x == nil {
		return 0, 0, false
	}
	fde, ok := f.searchFDE(x, v)
	if !ok {
		return 0, 0, false
	}
	start, end, ok = f.readFDE(fde)
	return start, end, ok && start <= v && v < end
}

// searchFDE returns the virtual address of the last FDE that starts at or
// before v.
func (f *File) searchFDE(x *frameIndex, v uint64) (uint64, bool) {
	lo, hi := 0, x.count()
	var e [fdeEntry]byte
	for hi-lo > fdeBlock {
		mid := lo + (hi-lo)/2
		if f.readInto(e[:], x.entries.off+uint64(mid)*fdeEntry) != nil {
			return 0, false
		}
		if x.addr(e[:4]) > v {
			hi = mid
		} else {
			lo = mid
		}
	}
	block, err := f.read(x.entries.off+uint64(lo)*fdeEntry, uint64(hi-lo)*fdeEntry, fdeBlock*fdeEntry)
	if err != nil {
		return 0, false
	}
	i := sort.Search(hi-lo, func(i int) bool { return x.addr(block[i*fdeEntry:]) > v }) - 1
	if i < 0 {
		return 0, false
	}
	return x.addr(block[i*fdeEntry+4:]), true
}

func (x *frameIndex) addr(b []byte) uint64 {
	return x.base + uint64(int64(int32(le.Uint32(b))))
}

// readFDE returns the range of code that the FDE at a virtual address covers.
func (f *File) readFDE(at uint64) (start, end uint64, ok bool) {
	b := make([]byte, maxFDEHead)
	n, _ := f.ReadVaddr(b, at)
	d := encDecoder{b: b[:n], vaddr: at}
	if d.length() == 0 {
		return 0, 0, false
	}
	cieField := d.pos
	delta := d.u32()
	if d.bad || delta == 0 {
		return 0, 0, false // a CIE, or nothing
	}
	enc, ok := f.pointerEncoding(at + uint64(cieField) - uint64(delta))
	if !ok {
		return 0, 0, false
	}
	start = d.value(enc)
	size := d.value(enc & 0x0f)
	if d.bad || start+size < start {
		return 0, 0, false
	}
	return start, start + size, true
}

// pointerEncoding returns how the FDEs of the CIE at a virtual address encode
// their addresses. LSB 5.0, 10.6.1.1.
func (f *File) pointerEncoding(at uint64) (byte, bool) {
	b := make([]byte, maxCIE)
	n, _ := f.ReadVaddr(b, at)
	d := encDecoder{b: b[:n], vaddr: at}
	if d.length() == 0 || d.u32() != 0 {
		return 0, false
	}
	version := d.u8()
	aug := d.cstring()
	if version == 4 {
		d.skip(2) // address and segment size
	}
	d.uleb() // code alignment
	d.sleb() // data alignment
	if version == 1 {
		d.u8()
	} else {
		d.uleb() // return address register
	}
	if d.bad || version == 0 || version == 2 || version > 4 {
		return 0, false
	}
	if aug == "" {
		return 0, true // absolute addresses
	}
	if aug[0] != 'z' {
		return 0, false
	}
	d.uleb()
	for _, c := range aug[1:] {
		switch c {
		case 'R':
			enc := d.u8()
			return enc, !d.bad
		case 'L':
			d.u8()
		case 'P':
			d.value(d.u8() &^ 0x80) // an indirect one is skipped just the same
		case 'S', 'B', 'G':
		default:
			return 0, false
		}
	}
	return 0, !d.bad
}
