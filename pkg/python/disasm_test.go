// SPDX-License-Identifier: Apache-2.0

package python

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

func hasCall(code []byte, vaddr uint64) bool {
	found := false
	eachX86(code, vaddr, func(_ uint64, in *x86asm.Inst) { found = found || in.Op == x86asm.CALL })
	return found
}

func TestDirectJumpsX86(t *testing.T) {
	code := []byte{
		0xf3, 0x0f, 0x1e, 0xfa, // endbr64
		0xeb, 0x10, // jmp +16
		0x74, 0xfa, // je -6
		0xe8, 0, 1, 0, 0, // call
		0xe9, 0, 1, 0, 0, // jmp +256
		0x0f, 0x85, 0xf0, 0xff, 0xff, 0xff, // jne -16
		0xff, 0xe0, // jmp *rax
		0x3e, 0xff, 0xe2, // notrack jmp *rdx
		0x0f, 0x0b, // ud2
		0xc3, // ret
	}
	want := []jump{{0x1016, false}, {0x1002, true}, {0x1112, false}, {0x1008, true}}
	if diff := cmp.Diff(want, directJumps(elf.EM_X86_64, code, 0x1000), cmp.AllowUnexported(jump{})); diff != "" {
		t.Errorf("jumps (-want +got):\n%s", diff)
	}
}

func TestDataRefsX86(t *testing.T) {
	code := []byte{
		0x48, 0x8d, 0x1d, 0x10, 0, 0, 0, // lea 0x10(%rip),%rbx
		0xbe, 0x76, 0xc1, 0x84, 0, // mov $0x84c176,%esi
		0x48, 0x8d, 0x44, 0x24, 8, // lea 8(%rsp),%rax
	}
	if diff := cmp.Diff([]uint64{0x1017, 0x84c176}, dataRefs(elf.EM_X86_64, code, 0x1000)); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

// TestDirectJumpsARM64 compares the decoding of branches with that of arm64asm,
// for words around every opcode.
func TestDirectJumpsARM64(t *testing.T) {
	compared := 0
	for top := range uint32(1 << 12) {
		for _, low := range []uint32{0, 0x1234, 0xffff0, 0x80000, 0x54321 &^ 0x10} {
			word := top<<20 | low
			code := binary.LittleEndian.AppendUint32(nil, word)
			in, err := arm64asm.Decode(code)
			if err != nil {
				continue
			}
			var want []jump
			switch in.Op {
			case arm64asm.B, arm64asm.CBZ, arm64asm.CBNZ, arm64asm.TBZ, arm64asm.TBNZ:
				for i, a := range in.Args {
					if rel, ok := a.(arm64asm.PCRel); ok {
						want = append(want, jump{0x100000 + uint64(rel), in.Op != arm64asm.B || i > 0})
						compared++
					}
				}
			}
			if diff := cmp.Diff(want, directJumps(elf.EM_AARCH64, code, 0x100000), cmp.AllowUnexported(jump{})); diff != "" {
				t.Fatalf("jumps of %v, %#x (-want +got):\n%s", in, word, diff)
			}
		}
	}
	if compared < 500 {
		t.Errorf("%d branches were compared, want 500 or more", compared)
	}
}

func TestDataRefsARM64(t *testing.T) {
	var code []byte
	for _, word := range []uint32{
		0xb0000aa0, // adrp x0, 0x155000 (+0x155 pages)
		0x9104c000, // add x0, x0, #0x130
		0x10000041, // adr x1, #8
		0x91004042, // add x2, x2, #0x10: of an unknown page
	} {
		code = binary.LittleEndian.AppendUint32(code, word)
	}
	if diff := cmp.Diff([]uint64{0x556130, 0x401010}, dataRefs(elf.EM_AARCH64, code, 0x401000)); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}
