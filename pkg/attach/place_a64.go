// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/binary"

	"golang.org/x/arch/arm64/arm64asm"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// instA64 is the size of every instruction.
const instA64 = 4

// lrA64 and spA64 are numbers of registers, beside x0 to x28.
const (
	lrA64 = 30
	spA64 = 31
)

// placeA64 is Place for arm64. The return address is in the link register, which
// the probe replaces; so a function whose return is probed must be met before
// the register is signed (paciasp) or stored.
func placeA64(code []byte, vaddr uint64, fn *alloc.Function) Placement {
	keep := uint32(fn.Args()) // argument n is in register xn (AAPCS64, 6.8.2)
	if fn.ReturnProbed() {
		keep |= 1<<lrA64 | 1<<spA64
	}
	reason := "the prologue is too long"
	var written uint32
	for i := range maxPrologue {
		pos := i * instA64
		if pos+instA64 > len(code) {
			reason = "the code ends without one"
			break
		}
		word := binary.LittleEndian.Uint32(code[pos:])
		if written&keep != 0 {
			reason = "an argument or the return address is written first"
			break
		}
		if simulatedA64(word) && !jumpedToA64(code, pos) {
			return Placement{Offset: uint64(pos), Emulated: true, Instruction: syntaxA64(code[pos:])}
		}
		writes, ok := writesA64(word)
		if !ok {
			reason = "the straight line ends without one"
			break
		}
		written |= writes
	}
	return start(syntaxA64(code), reason)
}

func syntaxA64(code []byte) string {
	inst, err := arm64asm.Decode(code)
	if err != nil {
		return "(unknown)"
	}
	return arm64asm.GNUSyntax(inst)
}

// simulatedA64 reports whether every supported kernel simulates the instruction
// (arm_probe_decode_insn of arch/arm64/kernel/probes/decode-insn.c, Linux 6.1).
// Left out are those that call or return, and nop, which only 6.13 simulates.
func simulatedA64(w uint32) bool {
	_, jump := jumpA64(w)
	return jump ||
		w&0x1f000000 == 0x10000000 || // adr, adrp
		w&0xbf000000 == 0x18000000 || // ldr (literal)
		w&0xff000000 == 0x98000000 // ldrsw (literal)
}

// jumpA64 returns where a direct jump leads, in bytes from itself (Arm ARM, C4.1).
func jumpA64(w uint32) (target int, ok bool) {
	switch {
	case w&0xfc000000 == 0x14000000: // b
		return int(int32(w<<6)>>6) * instA64, true
	case w&0xff000010 == 0x54000000, // b.cond
		w&0x7e000000 == 0x34000000: // cbz, cbnz
		return int(int32(w<<8)>>13) * instA64, true
	case w&0x7e000000 == 0x36000000: // tbz, tbnz
		return int(int32(w<<13)>>18) * instA64, true
	}
	return 0, false
}

// jumpedToA64 reports whether a direct jump inside the function leads to pos.
func jumpedToA64(code []byte, pos int) bool {
	for i := 0; i+instA64 <= len(code); i += instA64 {
		if target, ok := jumpA64(binary.LittleEndian.Uint32(code[i:])); ok && i+target == pos {
			return true
		}
	}
	return false
}

// writesA64 returns the general registers that an instruction writes, as a set,
// and false where that or the next instruction is not known.
func writesA64(w uint32) (set uint32, known bool) {
	switch {
	case w == 0xd503233f || w == 0xd503237f: // paciasp, pacibsp
		return 1 << lrA64, true
	case w&0xfffff01f == 0xd503201f: // hint: nop, bti, ...
		// The other signing hints (CRm 0 to 3) name registers of their own.
		return 0, w&0xf00 >= 0x400 || w == 0xd503201f
	case w&0x1f000000 == 0x0a000000: // logical, shifted register
		return destinationA64(w, false), true
	case w&0x1f000000 == 0x0b000000: // add and subtract, shifted or extended register
		return destinationA64(w, w&(1<<21) != 0 && w&(1<<29) == 0), true
	case w&0x1f000000 == 0x11000000: // add and subtract, immediate
		return destinationA64(w, w&(1<<29) == 0), true
	case w&0x1f800000 == 0x12000000: // logical, immediate
		return destinationA64(w, w>>29&3 != 3), true
	case w&0xffffffe0 == 0xd53bd040: // mrs xt, tpidr_el0
		return destinationA64(w, false), true
	case w&0x1f800000 == 0x12800000, // move wide
		w&0x1f800000 == 0x13000000: // bitfield
		return destinationA64(w, false), true
	case w&0x3f000000 == 0x39000000: // load and store, general register, unsigned offset
		if w>>22&3 == 0 {
			return 0, true // store
		}
		return destinationA64(w, false), true
	case w&0x7fc00000 == 0x29000000: // stp, signed offset
		return 0, true
	}
	return 0, false
}

// destinationA64 returns register Rd or Rt. Number 31 is the stack pointer in
// some encodings and a register that discards what is written in the others.
func destinationA64(w uint32, sp bool) uint32 {
	if rd := w & 31; rd != spA64 || sp {
		return 1 << rd
	}
	return 0
}
