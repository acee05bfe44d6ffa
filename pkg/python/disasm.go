// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bytes"
	"debug/elf"

	"golang.org/x/arch/x86/x86asm"
)

// jump is a direct jump, conditional or not; calls are none.
type jump struct {
	target      uint64
	conditional bool
}

// directJumps disassembles code that lies at virtual address vaddr, from its
// first byte to its last, and returns its direct jumps. Bytes that are no
// instruction (padding, data) are skipped one by one, so that a few of the
// jumps may be phantoms: the caller must check where they lead.
func directJumps(machine elf.Machine, code []byte, vaddr uint64) []jump {
	switch machine {
	case elf.EM_X86_64:
		return directJumpsX86(code, vaddr)
	case elf.EM_AARCH64:
		return directJumpsARM64(code, vaddr)
	}
	return nil
}

// dataRefs returns the constant addresses that code at vaddr forms, in the order
// of the code.
func dataRefs(machine elf.Machine, code []byte, vaddr uint64) []uint64 {
	switch machine {
	case elf.EM_X86_64:
		return dataRefsX86(code, vaddr)
	case elf.EM_AARCH64:
		return dataRefsARM64(code, vaddr)
	}
	return nil
}

// endbr64 stands where indirect branches may lead; x86asm does not know it.
var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

func eachX86(code []byte, vaddr uint64, fn func(pc uint64, in *x86asm.Inst)) {
	for i := 0; i < len(code); {
		if bytes.HasPrefix(code[i:], endbr64) {
			i += len(endbr64)
			continue
		}
		in, err := x86asm.Decode(code[i:], 64)
		if err != nil || in.Len == 0 {
			i++
			continue
		}
		fn(vaddr+uint64(i), &in)
		i += in.Len
	}
}

func directJumpsX86(code []byte, vaddr uint64) []jump {
	var js []jump
	eachX86(code, vaddr, func(pc uint64, in *x86asm.Inst) {
		rel, ok := in.Args[0].(x86asm.Rel)
		if ok && in.Op != x86asm.CALL {
			js = append(js, jump{pc + uint64(in.Len) + uint64(int64(rel)), in.Op != x86asm.JMP})
		}
	})
	return js
}

func dataRefsX86(code []byte, vaddr uint64) []uint64 {
	var refs []uint64
	eachX86(code, vaddr, func(pc uint64, in *x86asm.Inst) {
		for _, a := range in.Args {
			switch a := a.(type) {
			case x86asm.Mem: // position independent code
				if in.Op == x86asm.LEA && a.Base == x86asm.RIP {
					refs = append(refs, pc+uint64(in.Len)+uint64(a.Disp))
				}
			case x86asm.Imm: // code at fixed addresses
				if in.Op == x86asm.MOV && a > 0 {
					refs = append(refs, uint64(a))
				}
			}
		}
	})
	return refs
}
