// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// testELF describes a file to make: one executable segment at textAddr of
// textSize bytes (more than the file holds, as it may be) and sections.
type testELF struct {
	machine  elf.Machine
	textAddr uint64
	textSize uint64
	sections []testSection
	names    int // filler in .shstrtab
}

type testSection struct {
	name string
	addr uint64
	data []byte
}

// bytes lays the file out: headers, sections, names.
func (e testELF) bytes() []byte {
	const ehsize, phsize, shsize = 64, 56, 64
	var body bytes.Buffer
	names := append(bytes.Repeat([]byte{'x'}, e.names), 0)
	headers := []elf.Section64{{}}
	for _, s := range e.sections {
		headers = append(headers, elf.Section64{
			Name: uint32(len(names)),
			Type: uint32(elf.SHT_PROGBITS),
			Addr: s.addr,
			Off:  uint64(ehsize + phsize + body.Len()),
			Size: uint64(len(s.data)),
		})
		names = append(append(names, s.name...), 0)
		body.Write(s.data)
	}
	headers = append(headers, elf.Section64{
		Name: uint32(len(names)),
		Type: uint32(elf.SHT_STRTAB),
		Off:  uint64(ehsize + phsize + body.Len()),
		Size: uint64(len(names) + len(".shstrtab") + 1),
	})
	names = append(append(names, ".shstrtab"...), 0)
	body.Write(names)

	h := elf.Header64{
		Type:      uint16(elf.ET_DYN),
		Machine:   uint16(e.machine),
		Version:   1,
		Phoff:     ehsize,
		Phentsize: phsize,
		Phnum:     1,
		Shoff:     uint64(ehsize + phsize + body.Len()),
		Shentsize: shsize,
		Shnum:     uint16(len(headers)),
		Shstrndx:  uint16(len(headers) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if e.machine == 0 {
		h.Machine = uint16(elf.EM_X86_64)
	}
	text := elf.Prog64{
		Type:  uint32(elf.PT_LOAD),
		Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: e.textAddr,
		Memsz: e.textSize,
	}
	var out bytes.Buffer
	for _, v := range []any{h, text, body.Bytes(), headers} {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

// word appends 32-bit words.
func words(w ...uint32) []byte {
	var b []byte
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// frames makes an .eh_frame, whose records can be of any content.
type frames struct{ b []byte }

// cie appends a CIE with absolute addresses, the CFA at rsp+8 and the return
// address below it, then more instructions. It returns the CIE's offset.
func (f *frames) cie(more ...byte) int {
	at := len(f.b)
	body := append([]byte{
		1, 0, // version, no augmentation
		1, 0x78, 16, // code alignment 1, data alignment -8, return address in rip
		0x0c, 7, 8, // DW_CFA_def_cfa rsp, 8
		0x90, 1, // DW_CFA_offset rip, 1
	}, more...)
	f.b = append(f.b, words(uint32(len(body)+4), 0)...)
	f.b = append(f.b, body...)
	return at
}

// fde appends an FDE of n bytes of code at start with instructions.
func (f *frames) fde(cie int, start, n uint64, ops ...byte) {
	f.b = append(f.b, words(uint32(4+16+len(ops)), uint32(len(f.b)+4-cie))...)
	f.b = binary.LittleEndian.AppendUint64(f.b, start)
	f.b = binary.LittleEndian.AppendUint64(f.b, n)
	f.b = append(f.b, ops...)
}

// end ends the section.
func (f *frames) end() []byte { return append(f.b, 0, 0, 0, 0) }
