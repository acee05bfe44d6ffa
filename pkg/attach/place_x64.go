// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// endbr64 marks a target of indirect jumps. x86asm does not know it.
var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// argsX64 are the registers of arguments 0 to 5 (System V ABI, AMD64 supplement,
// 3.2.3), as numbers of canonicalX64.
var argsX64 = [6]uint8{7, 6, 2, 1, 8, 9} // rdi rsi rdx rcx r8 r9

// Numbers of canonicalX64 with a meaning here.
const (
	raxX64 = 0
	rdxX64 = 2
	rspX64 = 4
)

// walkX64 is a walk along the straight line from a function's start.
type walkX64 struct {
	code  []byte
	vaddr uint64
	fn    *alloc.Function
	pos   int
	// holders are the registers that hold each argument of the function, as sets.
	holders [len(argsX64)]uint32
	// written are the registers that were written so far.
	written uint32
	// null is set while the flags say whether the memory to free is NULL.
	null bool
	// past is set behind a branch on that.
	past bool
}

func placeX64(code []byte, vaddr uint64, fn *alloc.Function) Placement {
	w := walkX64{code: code, vaddr: vaddr, fn: fn}
	for n, reg := range argsX64 {
		w.holders[n] = 1 << reg
	}
	var branch *Placement // the test for NULL itself: good, if nothing follows
	reason := "the prologue is too long"
	for range maxPrologue {
		rest := w.code[w.pos:]
		if bytes.HasPrefix(rest, endbr64) {
			w.pos += len(endbr64)
			continue
		}
		inst, err := x86asm.Decode(rest, 64)
		if err != nil {
			reason = "an instruction cannot be decoded"
			break
		}
		if w.lost() {
			reason = "an argument or the stack pointer is written first"
			break
		}
		args, readable := w.arguments()
		if readable && emulatedX64(rest[:inst.Len]) && !w.jumpedTo(w.pos) {
			p := Placement{Offset: uint64(w.pos), Emulated: true, SkipsNull: w.past, Args: args, Instruction: w.syntax(inst)}
			if !w.null || inst.Op != x86asm.JE {
				return p
			}
			// Every call but free(NULL) goes on right behind.
			branch, w.past = &p, true
			w.pos += inst.Len
			continue
		}
		if !w.pass(inst) {
			reason = "the straight line ends without one"
			break
		}
	}
	if branch != nil {
		return *branch
	}
	first := "(unknown)"
	if inst, err := x86asm.Decode(code, 64); err == nil {
		first = w.syntax(inst)
	}
	if bytes.HasPrefix(code, endbr64) {
		first = "endbr64"
	}
	return start(first, reason)
}

// lost reports whether an argument that a probe needs is in no register any
// more, or the return address not where the stack pointer points.
func (w *walkX64) lost() bool {
	if w.fn.ReturnProbed() && w.written&(1<<rspX64) != 0 {
		return true
	}
	for n := range argsX64 {
		if w.fn.Args()&(1<<n) != 0 && w.holders[n] == 0 {
			return true
		}
	}
	return false
}

// arguments tells where the function's arguments are, nil for their own
// registers, and false if one that a probe needs is in none that it can read.
func (w *walkX64) arguments() (args []int, readable bool) {
	place := make([]int, len(argsX64))
	moved := false
	for n := range argsX64 {
		place[n] = n
		if w.fn.Args()&(1<<n) == 0 || w.holders[n]&(1<<argsX64[n]) != 0 {
			continue
		}
		place[n] = slices.IndexFunc(argsX64[:], func(reg uint8) bool { return w.holders[n]&(1<<reg) != 0 })
		if place[n] < 0 || w.fn.Role == alloc.RoleMap || w.fn.Role == alloc.RoleRemap {
			return nil, false // the programs know the arguments of mappings by number
		}
		moved = true
	}
	if !moved {
		return nil, true
	}
	return place, true
}

func (w *walkX64) syntax(inst x86asm.Inst) string {
	return x86asm.GNUSyntax(inst, w.vaddr+uint64(w.pos), nil)
}

// emulatedX64 reports whether every supported kernel emulates the instruction
// (branch_setup_xol_ops and push_setup_xol_ops of arch/x86/kernel/uprobes.c,
// Linux 6.1 to 6.18). Left out are calls, whose emulation does not keep the
// shadow stack in every version, and longer nops, which only 6.18 emulates.
func emulatedX64(b []byte) bool {
	switch len(b) {
	case 1:
		return b[0]&0xf8 == 0x50 || b[0] == 0x90 // push, nop
	case 2:
		return b[0] == 0x41 && b[1]&0xf8 == 0x50 || // push r8..r15
			b[0] == 0x66 && b[1] == 0x90 || // nop
			b[0] == 0xeb || b[0]&0xf0 == 0x70 // jmp, jcc
	case 5:
		return b[0] == 0xe9 // jmp
	case 6:
		return b[0] == 0x0f && b[1]&0xf0 == 0x80 // jcc
	}
	return false
}

// pass walks over an instruction and notes what it writes. It reports false
// for one that may continue elsewhere than behind itself, or whose effect on
// registers is not known here.
func (w *walkX64) pass(inst x86asm.Inst) bool {
	writes, known := writesX64(inst)
	if !known {
		return false
	}
	switch inst.Op {
	case x86asm.TEST:
		w.null = w.fn.Role == alloc.RoleFree && inst.DataSize == 64 && inst.Args[0] == inst.Args[1] &&
			w.holders[w.fn.Ptr]&destinationX64(inst) != 0
	case x86asm.MOV, x86asm.LEA, x86asm.MOVZX, x86asm.MOVSXD, x86asm.PUSH, x86asm.NOP:
		// They leave the flags alone.
	default:
		w.null = false
	}
	from, to, copies := copyX64(inst)
	for n := range w.holders {
		held := w.holders[n]&from != 0
		w.holders[n] &^= writes
		if copies && held {
			w.holders[n] |= to
		}
	}
	w.written |= writes
	w.pos += inst.Len
	return true
}

// copyX64 returns the two registers, as sets, of an instruction that copies all
// of one to another.
func copyX64(inst x86asm.Inst) (from, to uint32, ok bool) {
	if inst.Op != x86asm.MOV || inst.DataSize != 64 {
		return 0, 0, false
	}
	dst, ok1 := inst.Args[0].(x86asm.Reg)
	src, ok2 := inst.Args[1].(x86asm.Reg)
	if !ok1 || !ok2 || dst < x86asm.RAX || dst > x86asm.R15 || src < x86asm.RAX || src > x86asm.R15 {
		return 0, 0, false
	}
	return 1 << (src - x86asm.RAX), 1 << (dst - x86asm.RAX), true
}

// writesX64 returns the general registers that an instruction writes, as a set,
// and false if that or the next instruction is not known: the list is of those
// that compilers put into prologues.
func writesX64(inst x86asm.Inst) (set uint32, known bool) {
	switch inst.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.BT, x86asm.NOP, x86asm.PREFETCHT0, x86asm.PREFETCHNTA, x86asm.PREFETCHW:
		return 0, true
	case x86asm.PUSH:
		return 1 << rspX64, true
	case x86asm.MUL:
		return 1<<raxX64 | 1<<rdxX64, true
	case x86asm.CQO, x86asm.CDQ:
		return 1 << rdxX64, true
	case x86asm.IMUL:
		if inst.Args[1] == nil {
			return 1<<raxX64 | 1<<rdxX64, true
		}
		return destinationX64(inst), true
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA,
		x86asm.ADD, x86asm.ADC, x86asm.SUB, x86asm.SBB, x86asm.INC, x86asm.DEC, x86asm.NEG,
		x86asm.AND, x86asm.OR, x86asm.XOR, x86asm.NOT,
		x86asm.SHL, x86asm.SHR, x86asm.SAR, x86asm.ROL, x86asm.ROR,
		x86asm.BSF, x86asm.BSR, x86asm.TZCNT, x86asm.LZCNT, x86asm.BSWAP, x86asm.CDQE,
		x86asm.SETA, x86asm.SETAE, x86asm.SETB, x86asm.SETBE, x86asm.SETE, x86asm.SETNE, x86asm.SETO, x86asm.SETNO,
		x86asm.SETG, x86asm.SETGE, x86asm.SETL, x86asm.SETLE, x86asm.SETS, x86asm.SETNS,
		x86asm.CMOVA, x86asm.CMOVAE, x86asm.CMOVB, x86asm.CMOVBE, x86asm.CMOVE, x86asm.CMOVNE,
		x86asm.CMOVG, x86asm.CMOVGE, x86asm.CMOVL, x86asm.CMOVLE, x86asm.CMOVS, x86asm.CMOVNS,
		x86asm.MOVD, x86asm.MOVQ, x86asm.MOVAPS, x86asm.MOVUPS, x86asm.MOVDQA, x86asm.MOVDQU,
		x86asm.PXOR, x86asm.XORPS, x86asm.MOVHPS, x86asm.PUNPCKLQDQ:
		if inst.Op == x86asm.CDQE {
			return 1 << raxX64, true
		}
		return destinationX64(inst), true
	}
	return 0, false
}

// destinationX64 returns the general register that is the first operand, as a
// set; empty if that is another kind of operand.
func destinationX64(inst x86asm.Inst) uint32 {
	reg, ok := inst.Args[0].(x86asm.Reg)
	if !ok {
		return 0 // memory
	}
	if n, ok := canonicalX64(reg); ok {
		return 1 << n
	}
	return 0
}

// canonicalX64 returns the number of the 64-bit register that a register is a
// part of, in the order of the instruction encoding: rax rcx rdx rbx rsp rbp rsi
// rdi r8 ... r15. It is false for those of other kinds.
func canonicalX64(r x86asm.Reg) (uint8, bool) {
	switch {
	case r >= x86asm.AL && r <= x86asm.BL:
		return uint8(r - x86asm.AL), true
	case r >= x86asm.AH && r <= x86asm.BH:
		return uint8(r - x86asm.AH), true
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return uint8(r-x86asm.SPB) + rspX64, true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return uint8(r - x86asm.AX), true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return uint8(r - x86asm.EAX), true
	case r >= x86asm.RAX && r <= x86asm.R15:
		return uint8(r - x86asm.RAX), true
	}
	return 0, false
}

// jumpedTo reports whether a direct jump inside the function leads to the
// instruction at pos, so that one call could pass it more than once. Where an
// instruction cannot be decoded (x86asm knows no AVX), each byte behind it is
// taken as the possible start of a jump, which errs on the safe side.
func (w *walkX64) jumpedTo(pos int) bool {
	decodes := true
	for i := 0; i < len(w.code); {
		size := 1
		if decodes {
			if bytes.HasPrefix(w.code[i:], endbr64) {
				i += len(endbr64)
				continue
			}
			inst, err := x86asm.Decode(w.code[i:], 64)
			decodes = err == nil
			if decodes {
				size = inst.Len
			}
		}
		if target, ok := jumpX64(w.code[i:]); ok && i+target == pos {
			return true
		}
		i += size
	}
	return false
}

// jumpX64 returns where a direct jump that stands at the start of b leads,
// relative to its own start.
func jumpX64(b []byte) (target int, ok bool) {
	switch {
	case len(b) >= 2 && (b[0] == 0xeb || b[0]&0xf0 == 0x70 || b[0]&0xfc == 0xe0): // jmp, jcc, loop, jrcxz
		return 2 + int(int8(b[1])), true
	case len(b) >= 5 && b[0] == 0xe9:
		return 5 + int(int32(binary.LittleEndian.Uint32(b[1:]))), true
	case len(b) >= 6 && b[0] == 0x0f && b[1]&0xf0 == 0x80:
		return 6 + int(int32(binary.LittleEndian.Uint32(b[2:]))), true
	}
	return 0, false
}
