// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"fmt"
)

// dynamic is what PT_DYNAMIC says of the dynamic symbol table: virtual
// addresses, 0 where a table is absent.
type dynamic struct {
	symtab, strtab, strsz     uint64
	gnuHash, sysvHash, versym uint64
}

func (f *File) readDynamic() (dynamic, error) {
	var d dynamic
	p, ok := f.prog(elf.PT_DYNAMIC)
	if !ok {
		return d, nil
	}
	b, err := f.read(p.off, min(p.filesz, maxDynamic), maxDynamic)
	if err != nil {
		return d, fmt.Errorf("reading the dynamic segment: %w", err)
	}
	for ; len(b) >= dynSize; b = b[dynSize:] {
		v := le.Uint64(b[8:])
		switch elf.DynTag(le.Uint64(b)) {
		case elf.DT_NULL:
			return d, nil
		case elf.DT_SYMTAB:
			d.symtab = v
		case elf.DT_STRTAB:
			d.strtab = v
		case elf.DT_STRSZ:
			d.strsz = v
		case elf.DT_GNU_HASH:
			d.gnuHash = v
		case elf.DT_HASH:
			d.sysvHash = v
		case elf.DT_VERSYM:
			d.versym = v
		}
	}
	return d, nil
}

// regionAt returns the file's content from virtual address v to the end of
// its segment.
func (f *File) regionAt(v uint64) region {
	for i := range f.segments {
		s := &f.segments[i]
		if v >= s.Vaddr && v-s.Vaddr < s.Filesz && f.span(s.Off, s.Filesz) {
			d := v - s.Vaddr
			return region{s.Off + d, s.Filesz - d}
		}
	}
	return region{}
}

// dynamicSymtab finds the dynamic symbol table without section headers. Its
// length stands nowhere: it is the number of chains in the hash table.
func (f *File) dynamicSymtab() (*symtab, error) {
	d, err := f.dynamic()
	if err != nil || d.symtab == 0 || d.strtab == 0 {
		return nil, err
	}
	t := &symtab{sym: f.regionAt(d.symtab), str: f.regionAt(d.strtab)}
	if d.gnuHash != 0 {
		t.gnuHash = f.regionAt(d.gnuHash)
	}
	if d.sysvHash != 0 {
		t.sysvHash = f.regionAt(d.sysvHash)
	}
	if d.versym != 0 {
		t.versym = f.regionAt(d.versym)
	}
	t.str.size = min(t.str.size, d.strsz)
	n, err := f.countByHash(t)
	if err != nil {
		return nil, fmt.Errorf("counting dynamic symbols: %w", err)
	}
	t.sym.size = min(t.sym.size, n*symSize)
	if t.sym.size < symSize {
		return nil, nil
	}
	return t, f.checkSymtab(t)
}

// countByHash returns how many symbols the hash tables speak of.
func (f *File) countByHash(t *symtab) (uint64, error) {
	if t.sysvHash.size >= 8 {
		h, err := f.openSysvHash(t)
		if err != nil {
			return 0, err
		}
		return uint64(h.nchain), nil
	}
	if t.gnuHash.size == 0 {
		return 0, nil
	}
	h, err := f.openGNUHash(t)
	if err != nil {
		return 0, err
	}
	return h.count()
}
