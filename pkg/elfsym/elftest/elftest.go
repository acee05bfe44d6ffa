// SPDX-License-Identifier: Apache-2.0

// Package elftest writes small ELF files for tests, every field of which the
// test can set. It is imported by tests only.
package elftest

import (
	"debug/elf"
	"encoding/binary"
)

const (
	// HeaderSize is the size of the ELF header, behind which the program
	// headers stand.
	HeaderSize = 64
	// ProgSize is the size of a program header.
	ProgSize = 56

	sectionSize = 64
)

var le = binary.LittleEndian

// Builder collects the parts of a file. The zero value is an empty file.
type Builder struct {
	secs  []Section
	progs [][]byte
}

// Section is a section to be written.
type Section struct {
	Name    string
	Type    elf.SectionType
	Flags   elf.SectionFlag
	Addr    uint64
	Content []byte
	Link    string // name of the linked section
}

// Section adds a section.
func (b *Builder) Section(s Section) { b.secs = append(b.secs, s) }

// Prog adds a program header.
func (b *Builder) Prog(typ elf.ProgType, flags elf.ProgFlag, off, vaddr, filesz, memsz uint64) {
	p := le.AppendUint32(nil, uint32(typ))
	p = le.AppendUint32(p, uint32(flags))
	for _, v := range []uint64{off, vaddr, vaddr, filesz, memsz, 4096} {
		p = le.AppendUint64(p, v)
	}
	b.progs = append(b.progs, p)
}

// Bytes returns the file: header, program headers, contents padded to eight
// bytes, section headers.
func (b *Builder) Bytes() []byte {
	out := make([]byte, HeaderSize)
	for _, p := range b.progs {
		out = append(out, p...)
	}
	secs := append([]Section{{}}, b.secs...)
	secs = append(secs, Section{Name: ".shstrtab", Type: elf.SHT_STRTAB})
	var names []byte
	nameAt := make([]uint32, len(secs))
	index := make(map[string]uint32)
	for i, s := range secs {
		nameAt[i] = uint32(len(names))
		names = append(append(names, s.Name...), 0)
		index[s.Name] = uint32(i)
	}
	secs[len(secs)-1].Content = names
	var headers []byte
	for i, s := range secs {
		h := le.AppendUint32(nil, nameAt[i])
		h = le.AppendUint32(h, uint32(s.Type))
		for _, v := range []uint64{uint64(s.Flags), s.Addr, uint64(len(out)), uint64(len(s.Content))} {
			h = le.AppendUint64(h, v)
		}
		h = le.AppendUint32(h, index[s.Link])
		headers = append(headers, append(h, make([]byte, sectionSize-len(h))...)...)
		out = append(out, s.Content...)
		for len(out)%8 != 0 {
			out = append(out, 0)
		}
	}
	shoff := len(out)
	out = append(out, headers...)
	copy(out, "\x7fELF\x02\x01\x01")
	le.PutUint16(out[16:], uint16(elf.ET_DYN))
	le.PutUint16(out[18:], uint16(elf.EM_X86_64))
	le.PutUint32(out[20:], 1)
	if len(b.progs) > 0 {
		le.PutUint64(out[32:], HeaderSize)
	}
	le.PutUint64(out[40:], uint64(shoff))
	le.PutUint16(out[52:], HeaderSize)
	le.PutUint16(out[54:], ProgSize)
	le.PutUint16(out[56:], uint16(len(b.progs)))
	le.PutUint16(out[58:], sectionSize)
	le.PutUint16(out[60:], uint16(len(secs)))
	le.PutUint16(out[62:], uint16(len(secs)-1))
	return out
}

// Symbol encodes a symbol.
func Symbol(name uint32, typ elf.SymType, bind elf.SymBind, shndx uint16, value, size uint64) []byte {
	b := le.AppendUint32(nil, name)
	b = append(b, elf.ST_INFO(bind, typ), 0)
	b = le.AppendUint16(b, shndx)
	b = le.AppendUint64(b, value)
	return le.AppendUint64(b, size)
}

// Note encodes a note of 4-byte alignment.
func Note(owner string, typ uint32, desc []byte) []byte {
	name := append([]byte(owner), 0)
	if owner == "" {
		name = nil
	}
	b := le.AppendUint32(nil, uint32(len(name)))
	b = le.AppendUint32(b, uint32(len(desc)))
	b = le.AppendUint32(b, typ)
	for _, part := range [][]byte{name, desc} {
		b = append(b, part...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	return b
}
