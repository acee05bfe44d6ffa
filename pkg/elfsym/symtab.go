// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"fmt"
)

// region is a part of the file.
type region struct{ off, size uint64 }

// symtab is where one symbol table and what belongs to it lie in the file.
type symtab struct {
	sym, str region
	versym   region // .gnu.version, of a dynamic table only
	gnuHash  region // .gnu.hash, ditto
	sysvHash region // .hash, ditto
}

// count returns the number of symbols.
func (t *symtab) count() uint64 { return t.sym.size / symSize }

// rawSymbol is a symbol as it lies in the file.
type rawSymbol struct {
	index       uint64
	name        uint32 // offset in the string table
	info, other uint8
	shndx       uint16
	value, size uint64
}

func parseSymbol(b []byte, index uint64) rawSymbol {
	return rawSymbol{
		index: index,
		name:  le.Uint32(b),
		info:  b[4],
		other: b[5],
		shndx: le.Uint16(b[6:]),
		value: le.Uint64(b[8:]),
		size:  le.Uint64(b[16:]),
	}
}

func (s *rawSymbol) typ() elf.SymType  { return elf.ST_TYPE(s.info) }
func (s *rawSymbol) bind() elf.SymBind { return elf.ST_BIND(s.info) }

// defined reports whether the symbol has a place in this file.
func (s *rawSymbol) defined() bool {
	i := elf.SectionIndex(s.shndx)
	return i != elf.SHN_UNDEF && (i < elf.SHN_LORESERVE || i == elf.SHN_XINDEX)
}

// isAddress reports whether the symbol names a function or object. A symbol
// without a type is one if it stands in code, as assembly functions do.
func (f *File) isAddress(s *rawSymbol) bool {
	if !s.defined() {
		return false
	}
	switch s.typ() {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_OBJECT:
		return true
	case elf.STT_NOTYPE:
		return f.inCode(s)
	}
	return false
}

// isCode reports whether the symbol names executable code.
func (f *File) isCode(s *rawSymbol) bool {
	if !s.defined() {
		return false
	}
	switch s.typ() {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		return true
	case elf.STT_NOTYPE:
		return f.inCode(s)
	}
	return false
}

func (f *File) inCode(s *rawSymbol) bool {
	if int(s.shndx) < len(f.sections) {
		sec := &f.sections[s.shndx]
		return sec.flags&elf.SHF_EXECINSTR != 0 && s.value-sec.addr < sec.size
	}
	for i := range f.segments {
		if g := &f.segments[i]; g.Flags&elf.PF_X != 0 && s.value >= g.Vaddr && s.value-g.Vaddr < g.Memsz {
			return true
		}
	}
	return false
}

// symtab returns the static symbol table, nil if the file has none.
func (f *File) symtab() (*symtab, error) {
	s := f.sectionOfType(elf.SHT_SYMTAB)
	if s == nil {
		return nil, nil
	}
	t, err := f.sectionSymtab(s)
	if err != nil {
		return nil, fmt.Errorf("locating .symtab: %w", err)
	}
	return t, nil
}

// dynsym returns the dynamic symbol table, nil if the file has none. Without
// section headers it is found as the loader finds it; with them it is not, since
// the segments of a file of separate debug information point at other content.
func (f *File) dynsym() (*symtab, error) {
	if len(f.sections) == 0 {
		return f.dynamicSymtab()
	}
	s := f.sectionOfType(elf.SHT_DYNSYM)
	if s == nil {
		return nil, nil
	}
	t, err := f.sectionSymtab(s)
	if err != nil {
		return nil, fmt.Errorf("locating .dynsym: %w", err)
	}
	if t != nil {
		t.versym = f.regionOfType(elf.SHT_GNU_VERSYM)
		t.gnuHash = f.regionOfType(elf.SHT_GNU_HASH)
		t.sysvHash = f.regionOfType(elf.SHT_HASH)
	}
	return t, nil
}

// regionOfType returns the content of the first section of a type, nothing if
// there is none or it does not lie in the file.
func (f *File) regionOfType(typ elf.SectionType) region {
	s := f.sectionOfType(typ)
	if s == nil || !f.span(s.off, s.size) {
		return region{}
	}
	return region{s.off, s.size}
}

// sectionSymtab checks the bounds of a symbol table and its string table. An
// empty or NOBITS section, as in a file of separate debug information, is no
// table.
func (f *File) sectionSymtab(s *section) (*symtab, error) {
	if s.size < symSize {
		return nil, nil
	}
	if uint64(s.link) >= uint64(len(f.sections)) {
		return nil, fmt.Errorf("string table is section %d of %d: %w", s.link, len(f.sections), ErrCorrupt)
	}
	str := &f.sections[s.link]
	if str.typ == elf.SHT_NOBITS {
		return nil, nil
	}
	t := &symtab{sym: region{s.off, s.size}, str: region{str.off, str.size}}
	return t, f.checkSymtab(t)
}

func (f *File) checkSymtab(t *symtab) error {
	if !f.span(t.sym.off, t.sym.size) || !f.span(t.str.off, t.str.size) {
		return fmt.Errorf("table of %d bytes with %d bytes of names: %w", t.sym.size, t.str.size, ErrCorrupt)
	}
	if t.count() > maxSymbols {
		return fmt.Errorf("%d symbols: %w", t.count(), ErrTooLarge)
	}
	return nil
}

// symbolWindow is how many symbols are read at once: 96 KiB.
const symbolWindow = 4096

// eachSymbol calls fn for the symbols of a table in its order until fn returns
// false. The symbol is valid during the call only.
func (f *File) eachSymbol(t *symtab, fn func(*rawSymbol) bool) error {
	buf := make([]byte, min(t.count(), symbolWindow)*symSize)
	var s rawSymbol
	for i := uint64(1); i < t.count(); { // symbol 0 is void
		n := min(t.count()-i, uint64(len(buf))/symSize)
		b := buf[:n*symSize]
		if err := f.readInto(b, t.sym.off+i*symSize); err != nil {
			return fmt.Errorf("reading symbols: %w", err)
		}
		for ; len(b) > 0; b = b[symSize:] {
			s = parseSymbol(b, i)
			if !fn(&s) {
				return nil
			}
			i++
		}
	}
	return nil
}

// symbolAt reads one symbol of a table.
func (f *File) symbolAt(t *symtab, i uint64) (rawSymbol, error) {
	if i >= t.count() {
		return rawSymbol{}, fmt.Errorf("symbol %d of %d: %w", i, t.count(), ErrCorrupt)
	}
	var b [symSize]byte
	if err := f.readInto(b[:], t.sym.off+i*symSize); err != nil {
		return rawSymbol{}, err
	}
	return parseSymbol(b[:], i), nil
}

// nameAt reads one name of a string table, without its version suffix.
func (f *File) nameAt(str region, off uint64) (string, error) {
	var name []byte
	buf := make([]byte, 128)
	for len(name) < maxName && off < str.size {
		b := buf[:min(uint64(len(buf)), str.size-off)]
		if err := f.readInto(b, str.off+off); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return trimVersion(string(append(name, b[:i]...))), nil
		}
		name = append(name, b...)
		off += uint64(len(b))
		buf = make([]byte, min(2*len(buf), 4096))
	}
	return "", fmt.Errorf("reading a symbol name without an end: %w", ErrCorrupt)
}
