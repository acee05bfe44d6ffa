// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
)

// section is a section header.
type section struct {
	name       string
	typ        elf.SectionType
	flags      elf.SectionFlag
	addr       uint64
	off, size  uint64
	link, info uint32
}

// readSections reads the section headers and returns header 0, which carries
// counts too large for the ELF header, or nil if the file has none.
func (f *File) readSections(h []byte) (*section, error) {
	off := le.Uint64(h[40:])
	entsize, n, strndx := le.Uint16(h[58:]), uint64(le.Uint16(h[60:])), uint32(le.Uint16(h[62:]))
	if off == 0 {
		return nil, nil
	}
	if entsize != shdrSize {
		return nil, fmt.Errorf("entry size %d: %w", entsize, ErrCorrupt)
	}
	b, err := f.read(off, shdrSize, shdrSize)
	if err != nil {
		return nil, err
	}
	first, _ := parseSection(b)
	if n == 0 {
		n = first.size
	}
	if strndx == uint32(elf.SHN_XINDEX) {
		strndx = first.link
	}
	if n > maxSections {
		return &first, fmt.Errorf("%d sections: %w", n, ErrTooLarge)
	}
	if b, err = f.read(off, n*shdrSize, maxSections*shdrSize); err != nil {
		return &first, err
	}
	sections := make([]section, n)
	names := make([]uint32, n)
	for i := range sections {
		sections[i], names[i] = parseSection(b[i*shdrSize:])
	}
	f.sections = sections
	if uint64(strndx) >= n || strndx == 0 {
		return &first, nil // nameless sections, still known by type
	}
	strtab, err := f.read(sections[strndx].off, sections[strndx].size, maxShstrtab)
	if err != nil {
		return &first, fmt.Errorf("reading section names: %w", err)
	}
	for i, n := range names {
		sections[i].name = cstring(strtab, uint64(n))
	}
	return &first, nil
}

func parseSection(b []byte) (s section, name uint32) {
	return section{
		typ:   elf.SectionType(le.Uint32(b[4:])),
		flags: elf.SectionFlag(le.Uint64(b[8:])),
		addr:  le.Uint64(b[16:]),
		off:   le.Uint64(b[24:]),
		size:  le.Uint64(b[32:]),
		link:  le.Uint32(b[40:]),
		info:  le.Uint32(b[44:]),
	}, le.Uint32(b)
}

// cstring returns the NUL-terminated string at off, "" if there is none.
func cstring(b []byte, off uint64) string {
	if off >= uint64(len(b)) {
		return ""
	}
	b = b[off:]
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return ""
	}
	return string(b[:n])
}

// sectionNamed returns the first section of a name that has content in the file.
func (f *File) sectionNamed(name string) (*section, error) {
	for i := range f.sections {
		if s := &f.sections[i]; s.name == name && s.typ != elf.SHT_NOBITS && s.typ != elf.SHT_NULL {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, ErrNoSection)
}

// sectionOfType returns the first section of a type, nil if there is none.
func (f *File) sectionOfType(t elf.SectionType) *section {
	for i := range f.sections {
		if f.sections[i].typ == t {
			return &f.sections[i]
		}
	}
	return nil
}

// sectionIndexAt returns the index of the section that holds virtual address v.
func (f *File) sectionIndexAt(v uint64) (int, bool) {
	for i := range f.sections {
		s := &f.sections[i]
		if s.flags&elf.SHF_ALLOC != 0 && s.flags&elf.SHF_TLS == 0 && v >= s.addr && v-s.addr < s.size {
			return i, true
		}
	}
	return 0, false
}

// Section returns the content of a section, decompressed if need be. It fails
// with [ErrNoSection], [ErrCorrupt], or [ErrTooLarge] above 256 MiB. The slice
// is the caller's own.
func (f *File) Section(name string) ([]byte, error) {
	s, err := f.sectionNamed(name)
	if err != nil {
		return nil, err
	}
	if s.compressed() {
		var b bytes.Buffer
		if _, err := f.decompress(s, &b, maxSection); err != nil {
			return nil, fmt.Errorf("decompressing %s: %w", name, err)
		}
		return b.Bytes(), nil
	}
	b, err := f.read(s.off, s.size, maxSection)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return b, nil
}

// SectionReader returns random access to the content of a section without
// reading it. It fails with [ErrNoSection], [ErrCorrupt], or [ErrCompressed]
// for a section that must go through [File.Decompress].
func (f *File) SectionReader(name string) (*io.SectionReader, error) {
	s, err := f.sectionNamed(name)
	if err != nil {
		return nil, err
	}
	if s.compressed() {
		return nil, fmt.Errorf("%s: %w", name, ErrCompressed)
	}
	if !f.span(s.off, s.size) {
		return nil, fmt.Errorf("%s: %w", name, ErrCorrupt)
	}
	return io.NewSectionReader(f.r, int64(s.off), int64(s.size)), nil
}
