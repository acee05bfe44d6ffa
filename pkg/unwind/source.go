// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// span is a range of addresses, end excluded.
type span struct{ start, end uint64 }

// section is a part of a file that the extractor reads as a whole.
type section struct {
	name       string
	addr       uint64 // file-virtual address, 0 if not loaded
	off        int64
	size       int64
	limit      int64 // what size may be at most
	headerOnly bool  // shown to the extractor, but read piecemeal
}

// source is an ELF file of which the headers have been read and judged: every
// range named here lies within the file and its limits.
type source struct {
	r        io.ReaderAt
	size     int64
	header   elf.Header64
	segments []elf.Prog64 // PT_LOAD, and PT_DYNAMIC if there is one
	text     []span       // executable addresses, sorted, not overlapping
	sections []section
}

// newSource reads the headers of an ELF file of size bytes.
func newSource(r io.ReaderAt, size int64) (*source, error) {
	s := &source{r: r, size: size}
	if err := s.readHeader(); err != nil {
		return nil, err
	}
	ehdr, err := s.readSegments()
	if err != nil {
		return nil, err
	}
	named, err := s.readSections()
	if err != nil {
		return nil, err
	}
	if err := s.chooseSections(named, ehdr); err != nil {
		return nil, err
	}
	return s, nil
}

// inFile says whether n bytes at off lie within the file.
func (s *source) inFile(off, n uint64) bool {
	return off <= uint64(s.size) && n <= uint64(s.size)-off
}

// read reads the n bytes at off into v, a pointer to a slice or struct of
// fixed size.
func (s *source) read(v any, off uint64) error {
	n := binary.Size(v)
	if !s.inFile(off, uint64(n)) {
		return io.ErrUnexpectedEOF
	}
	return binary.Read(io.NewSectionReader(s.r, int64(off), int64(n)), binary.LittleEndian, v)
}

func (s *source) readHeader() error {
	h := &s.header
	err := s.read(h, 0)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("reading ELF header: %w", err)
	}
	if err != nil || !bytes.Equal(h.Ident[:4], []byte(elf.ELFMAG)) {
		return ErrNotELF
	}
	class, data := elf.Class(h.Ident[elf.EI_CLASS]), elf.Data(h.Ident[elf.EI_DATA])
	if class != elf.ELFCLASS64 || data != elf.ELFDATA2LSB {
		return fmt.Errorf("%w: %s %s", ErrUnsupported, class, data)
	}
	machine := elf.Machine(h.Machine)
	if machine != elf.EM_X86_64 && machine != elf.EM_AARCH64 {
		return fmt.Errorf("%w: %s", ErrUnsupported, machine)
	}
	return nil
}

// readSegments fills s.segments and s.text, and returns the segment of
// .eh_frame_hdr, which has no type if there is none.
func (s *source) readSegments() (ehdr elf.Prog64, err error) {
	h := &s.header
	if h.Phnum > maxSegments {
		return ehdr, fmt.Errorf("%w: %d program headers, at most %d", ErrTooLarge, h.Phnum, maxSegments)
	}
	if h.Phnum > 0 && int(h.Phentsize) != binary.Size(elf.Prog64{}) {
		return ehdr, fmt.Errorf("%w: program headers of %d bytes", ErrCorrupt, h.Phentsize)
	}
	all := make([]elf.Prog64, h.Phnum)
	if err := s.read(all, h.Phoff); err != nil {
		return ehdr, fmt.Errorf("%w: reading program headers: %w", ErrCorrupt, err)
	}
	dynamic := false
	for _, p := range all {
		switch elf.ProgType(p.Type) {
		case elf.PT_LOAD:
			if err := s.addLoad(p); err != nil {
				return ehdr, err
			}
		case elf.PT_DYNAMIC:
			if !dynamic && p.Filesz <= maxDynamic && s.inFile(p.Off, p.Filesz) {
				s.segments = append(s.segments, p)
				dynamic = true
			}
		case elf.PT_GNU_EH_FRAME:
			ehdr = p
		}
	}
	s.text = union(s.text)
	return ehdr, nil
}

// addLoad adds a loaded segment. A segment that a truncated file lacks in part
// or whole is cut, as the rest of the file may still be good.
func (s *source) addLoad(p elf.Prog64) error {
	if p.Vaddr+p.Memsz < p.Vaddr {
		return fmt.Errorf("%w: a segment of %d bytes at %#x", ErrCorrupt, p.Memsz, p.Vaddr)
	}
	p.Off = min(p.Off, uint64(s.size))
	p.Filesz = min(p.Filesz, p.Memsz, uint64(s.size)-p.Off)
	s.segments = append(s.segments, p)
	if elf.ProgFlag(p.Flags)&elf.PF_X == 0 || p.Memsz == 0 {
		return nil
	}
	if p.Vaddr+p.Memsz >= maxPages<<pageBits {
		return fmt.Errorf("%w: code up to %#x, below %#x", ErrTooLarge, p.Vaddr+p.Memsz, uint64(maxPages)<<pageBits)
	}
	s.text = append(s.text, span{p.Vaddr, p.Vaddr + p.Memsz})
	return nil
}

// union sorts spans and joins those that touch or overlap.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var out []span
	for _, x := range spans {
		if n := len(out); n > 0 && x.start <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, x.end)
			continue
		}
		out = append(out, x)
	}
	return out
}

// wanted names the sections that matter, with the limit of each.
var wanted = map[string]int64{
	".eh_frame":              maxFrames,
	".eh_frame_hdr":          maxFrames,
	".debug_frame":           maxFrames,
	".gopclntab":             maxGoTable,
	".data.rel.ro.gopclntab": maxGoTable,
	".data.rel.ro":           maxGoTable,
	".go.module":             maxBuildInfo,
	".go.buildinfo":          maxBuildInfo,
}

// readSections returns the wanted sections that the file has. A section table
// that makes no sense is treated as absent, as the loader does not look at it.
func (s *source) readSections() (map[string]section, error) {
	h := &s.header
	if h.Shnum == 0 || h.Shnum > maxSections || h.Shstrndx >= h.Shnum ||
		int(h.Shentsize) != binary.Size(elf.Section64{}) {
		return nil, nil
	}
	all := make([]elf.Section64, h.Shnum)
	if err := s.read(all, h.Shoff); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading section headers: %w", err)
	}
	strs := all[h.Shstrndx]
	if !s.inFile(strs.Off, strs.Size) {
		return nil, nil
	}
	names := make([]byte, min(strs.Size, maxNames))
	if err := s.read(names, strs.Off); err != nil {
		return nil, fmt.Errorf("reading section names: %w", err)
	}
	named := map[string]section{}
	for _, x := range all {
		name := wantedName(names, x.Name)
		if _, dup := named[name]; name == "" || dup {
			continue
		}
		if elf.SectionType(x.Type) == elf.SHT_NOBITS || x.Size == 0 ||
			elf.SectionFlag(x.Flags)&elf.SHF_COMPRESSED != 0 || !s.inFile(x.Off, x.Size) {
			continue
		}
		named[name] = section{name: name, addr: x.Addr, off: int64(x.Off), size: int64(x.Size), limit: wanted[name]}
	}
	return named, nil
}

// wantedName returns the name at off of a string table if it is a wanted one.
// It copies nothing, since 65,000 sections may all name one string of 1 MB.
func wantedName(names []byte, off uint32) string {
	if uint64(off) >= uint64(len(names)) {
		return ""
	}
	rest := names[off:]
	for name := range wanted {
		if len(rest) > len(name) && rest[len(name)] == 0 && string(rest[:len(name)]) == name {
			return name
		}
	}
	return ""
}

// chooseSections decides what the extractor is shown.
func (s *source) chooseSections(named map[string]section, ehdr elf.Prog64) error {
	add := func(x section, name string) {
		x.name = name
		s.sections = append(s.sections, x)
	}
	if eh, ok := named[".eh_frame"]; ok {
		add(eh, ".eh_frame")
	} else if eh, ok, err := s.findFrames(named, ehdr); err != nil {
		return err
	} else if ok {
		add(eh, ".eh_frame")
	}
	if x, ok := named[".debug_frame"]; ok {
		add(x, ".debug_frame")
	}
	table, ok, err := s.findGoTable(named)
	if err != nil {
		return err
	}
	if ok {
		add(table, ".gopclntab")
		for _, name := range []string{".go.module", ".go.buildinfo"} {
			if x, ok := named[name]; ok && x.size <= x.limit {
				x.headerOnly = true
				add(x, name)
			}
		}
	}
	if len(s.sections) == 0 || len(s.text) == 0 {
		return ErrNoRows
	}
	for _, x := range s.sections {
		if x.size > x.limit {
			return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrTooLarge, x.name, x.size, x.limit)
		}
	}
	return nil
}
