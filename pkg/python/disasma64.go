// SPDX-License-Identifier: Apache-2.0

package python

import "encoding/binary"

// The few A64 instructions that matter here, by mask and value of their fixed
// bits (Arm Architecture Reference Manual, C4.1 "A64 instruction set encoding").

func eachARM64(code []byte, vaddr uint64, fn func(pc uint64, word uint32)) {
	for i := 0; i+4 <= len(code); i += 4 {
		fn(vaddr+uint64(i), binary.LittleEndian.Uint32(code[i:]))
	}
}

// signed returns the width bits of word from bit low on, sign extended.
func signed(word uint32, low, width uint) int64 {
	return int64(word) << (64 - low - width) >> (64 - width)
}

func directJumpsARM64(code []byte, vaddr uint64) []jump {
	var js []jump
	eachARM64(code, vaddr, func(pc uint64, word uint32) {
		switch {
		case word&0xfc000000 == 0x14000000: // b
			js = append(js, jump{pc + uint64(signed(word, 0, 26)*4), false})
		case word&0xff000010 == 0x54000000, // b.cond
			word&0x7e000000 == 0x34000000: // cbz, cbnz
			js = append(js, jump{pc + uint64(signed(word, 5, 19)*4), true})
		case word&0x7e000000 == 0x36000000: // tbz, tbnz
			js = append(js, jump{pc + uint64(signed(word, 5, 14)*4), true})
		}
	})
	return js
}

func dataRefsARM64(code []byte, vaddr uint64) []uint64 {
	var refs []uint64
	var pages [32]uint64 // by register: the page that adrp put into it
	eachARM64(code, vaddr, func(pc uint64, word uint32) {
		rd, rn := word&31, word>>5&31
		imm21 := signed(word, 5, 19)<<2 | int64(word>>29&3)
		switch {
		case word&0x9f000000 == 0x10000000: // adr
			refs = append(refs, pc+uint64(imm21))
		case word&0x9f000000 == 0x90000000: // adrp
			pages[rd] = pc&^0xfff + uint64(imm21<<12)
		case word&0xffc00000 == 0x91000000 && pages[rn] != 0: // add with an immediate
			refs = append(refs, pages[rn]+uint64(word>>10&0xfff))
		}
	})
	return refs
}
