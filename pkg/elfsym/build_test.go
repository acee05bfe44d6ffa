// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"testing"
)

// elfBuilder writes small ELF files whose every field a test can set.
type elfBuilder struct {
	secs  []builtSection
	progs [][]byte
}

type builtSection struct {
	name    string
	typ     elf.SectionType
	flags   elf.SectionFlag
	addr    uint64
	content []byte
	link    string // name of the linked section
}

func newELF() *elfBuilder { return &elfBuilder{} }

func (b *elfBuilder) section(name string, typ elf.SectionType, flags elf.SectionFlag, addr uint64, content []byte) {
	b.secs = append(b.secs, builtSection{name: name, typ: typ, flags: flags, addr: addr, content: content})
}

func (b *elfBuilder) symtab(name string, typ elf.SectionType, content []byte, strtab string) {
	b.secs = append(b.secs, builtSection{name: name, typ: typ, content: content, link: strtab})
}

// prog adds a program header.
func (b *elfBuilder) prog(typ elf.ProgType, flags elf.ProgFlag, off, vaddr, filesz, memsz uint64) {
	p := le.AppendUint32(nil, uint32(typ))
	p = le.AppendUint32(p, uint32(flags))
	for _, v := range []uint64{off, vaddr, vaddr, filesz, memsz, 4096} {
		p = le.AppendUint64(p, v)
	}
	b.progs = append(b.progs, p)
}

// bytes lays the file out: header, program headers, contents, section headers.
func (b *elfBuilder) bytes() []byte {
	out := make([]byte, ehdrSize)
	for _, p := range b.progs {
		out = append(out, p...)
	}
	secs := append([]builtSection{{}}, b.secs...)
	var names []byte
	nameAt := make([]uint32, len(secs)+1)
	for i, s := range append(secs, builtSection{name: ".shstrtab"}) {
		nameAt[i] = uint32(len(names))
		names = append(append(names, s.name...), 0)
	}
	secs = append(secs, builtSection{name: ".shstrtab", typ: elf.SHT_STRTAB, content: names})
	var headers []byte
	for i, s := range secs {
		h := le.AppendUint32(nil, nameAt[i])
		h = le.AppendUint32(h, uint32(s.typ))
		for _, v := range []uint64{uint64(s.flags), s.addr, uint64(len(out)), uint64(len(s.content))} {
			h = le.AppendUint64(h, v)
		}
		link := uint32(0)
		for j, l := range secs {
			if s.link != "" && l.name == s.link {
				link = uint32(j)
			}
		}
		h = le.AppendUint32(h, link)
		h = append(h, make([]byte, shdrSize-len(h))...)
		headers = append(headers, h...)
		out = append(out, s.content...)
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
		le.PutUint64(out[32:], ehdrSize)
	}
	le.PutUint64(out[40:], uint64(shoff))
	le.PutUint16(out[52:], ehdrSize)
	le.PutUint16(out[54:], phdrSize)
	le.PutUint16(out[56:], uint16(len(b.progs)))
	le.PutUint16(out[58:], shdrSize)
	le.PutUint16(out[60:], uint16(len(secs)))
	le.PutUint16(out[62:], uint16(len(secs)-1))
	return out
}

func (b *elfBuilder) open(tb testing.TB) *File {
	tb.Helper()
	raw := b.bytes()
	f, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// symbolBytes encodes one symbol.
func symbolBytes(name uint32, typ elf.SymType, bind elf.SymBind, shndx uint16, value, size uint64) []byte {
	b := le.AppendUint32(nil, name)
	b = append(b, elf.ST_INFO(bind, typ), 0)
	b = le.AppendUint16(b, shndx)
	b = le.AppendUint64(b, value)
	return le.AppendUint64(b, size)
}

// noteBytes encodes one note of 4-byte alignment.
func noteBytes(owner string, typ uint32, desc []byte) []byte {
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
