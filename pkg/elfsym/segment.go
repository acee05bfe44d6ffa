// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"fmt"
	"io"
)

// Segment is a loadable part of the file (PT_LOAD).
type Segment struct {
	Vaddr, Memsz uint64 // where it stands in memory before relocation
	Off, Filesz  uint64 // where its content stands in the file
	Flags        elf.ProgFlag
}

// prog is any program header.
type prog struct {
	typ                elf.ProgType
	flags              elf.ProgFlag
	off, vaddr, filesz uint64
}

// Segments returns the loadable segments in the file's order, ascending by
// address in a file that the kernel loads. The slice is shared: do not modify.
func (f *File) Segments() []Segment { return f.segments }

// readSegments reads the program headers. first is section header 0, which
// holds their number where the ELF header's field is too narrow.
func (f *File) readSegments(h []byte, first *section) error {
	off := le.Uint64(h[32:])
	entsize, n := le.Uint16(h[54:]), uint64(le.Uint16(h[56:]))
	if n == 0xffff && first != nil { // PN_XNUM
		n = uint64(first.info)
	}
	if n == 0 {
		return nil // a relocatable file
	}
	if entsize != phdrSize {
		return fmt.Errorf("entry size %d: %w", entsize, ErrCorrupt)
	}
	if n > maxSegments {
		return fmt.Errorf("%d entries: %w", n, ErrTooLarge)
	}
	b, err := f.read(off, n*phdrSize, maxSegments*phdrSize)
	if err != nil {
		return err
	}
	for ; len(b) > 0; b = b[phdrSize:] {
		p := prog{
			typ:    elf.ProgType(le.Uint32(b)),
			flags:  elf.ProgFlag(le.Uint32(b[4:])),
			off:    le.Uint64(b[8:]),
			vaddr:  le.Uint64(b[16:]),
			filesz: le.Uint64(b[32:]),
		}
		f.progs = append(f.progs, p)
		if p.typ != elf.PT_LOAD {
			continue
		}
		s := Segment{Vaddr: p.vaddr, Memsz: le.Uint64(b[40:]), Off: p.off, Filesz: p.filesz, Flags: p.flags}
		if s.Vaddr+s.Memsz < s.Vaddr || s.Off+s.Filesz < s.Off || s.Vaddr+s.Filesz < s.Vaddr {
			return fmt.Errorf("segment at %#x of %d bytes: %w", s.Vaddr, s.Memsz, ErrCorrupt)
		}
		f.segments = append(f.segments, s)
	}
	return nil
}

// prog returns the first program header of a type.
func (f *File) prog(t elf.ProgType) (prog, bool) {
	for _, p := range f.progs {
		if p.typ == t {
			return p, true
		}
	}
	return prog{}, false
}

// VaddrToOffset returns the file offset of the byte that is loaded at virtual
// address v, or false if v is in no segment or in the part of one that has no
// content in the file (.bss).
func (f *File) VaddrToOffset(v uint64) (uint64, bool) {
	for i := range f.segments {
		if s := &f.segments[i]; v >= s.Vaddr && v-s.Vaddr < s.Filesz {
			return v - s.Vaddr + s.Off, true
		}
	}
	return 0, false
}

// OffsetToVaddr returns the virtual address at which the byte at file offset
// off is loaded. Where segments share the byte, the executable one wins, since
// the addresses that are asked for are mostly of code.
func (f *File) OffsetToVaddr(off uint64) (uint64, bool) {
	var v uint64
	found := false
	for i := range f.segments {
		s := &f.segments[i]
		if off < s.Off || off-s.Off >= s.Filesz {
			continue
		}
		if s.Flags&elf.PF_X != 0 {
			return off - s.Off + s.Vaddr, true
		}
		if !found {
			v, found = off-s.Off+s.Vaddr, true
		}
	}
	return v, found
}

// ReadVaddr fills b with the file's content at virtual address v, before
// relocation. It returns how much of b it filled, and an error if that is not
// all: [ErrNoSegment] where v is not in the file, io.ErrUnexpectedEOF where the
// segment's content ends within b.
func (f *File) ReadVaddr(b []byte, v uint64) (int, error) {
	for i := range f.segments {
		s := &f.segments[i]
		if v < s.Vaddr || v-s.Vaddr >= s.Filesz {
			continue
		}
		rest := s.Filesz - (v - s.Vaddr)
		n := min(uint64(len(b)), rest)
		if err := f.readInto(b[:n], v-s.Vaddr+s.Off); err != nil {
			return 0, fmt.Errorf("reading at virtual address %#x: %w", v, err)
		}
		if n < uint64(len(b)) {
			return int(n), io.ErrUnexpectedEOF
		}
		return int(n), nil
	}
	return 0, fmt.Errorf("reading at virtual address %#x: %w", v, ErrNoSegment)
}
