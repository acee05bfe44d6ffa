// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// Info says how to step from a frame to its caller. It has the layout of
// struct UnwindInfo in support/ebpf/types.h of go.opentelemetry.io/ebpf-profiler
// v0.0.202633: 12 bytes, little-endian, no padding; unwind_one_frame in
// native_stack_trace.h there is the interpreter that the following restates.
//
// The address to look up is the pc itself in the innermost frame and in a
// frame interrupted by a signal, and pc-1 in a frame that made a call.
//
// If Flags has FlagCommand, Param is a Command and the other fields are zero.
// Otherwise, with the pc rowDelta bytes after the start of the row:
//
//	param := Param
//	if MergeOpcode != 0 && rowDelta >= MergeOpcode&^MergeNegative {
//		param += 8, or -= 8 if MergeOpcode has MergeNegative
//	}
//
// On x86-64:
//
//	cfa := reg[BaseReg] + param                                  // plain
//	cfa := *(reg[BaseReg] + param&^DerefMask) +
//	       (param&DerefMask)*DerefMultiplier                     // FlagDerefCFA
//	aux := reg[AuxBaseReg] + AuxParam     // reg[RegInvalid] = 0, reg[RegCFA] = cfa
//	if FlagRegisterRA:   pc, fp = aux, 0
//	else:                fp = *aux if aux != 0, or 0 where that cannot be read,
//	                     fp = 0 if aux == 0 and BaseReg == RegFP, else kept
//	                     pc = *(cfa - 8); a cfa of 0 is an error
//	sp = cfa; the caller is not a leaf; pc 0 ends the stack
//
// AuxBaseReg RegInvalid comes with AuxParam 0, so that aux is then 0.
//
// On AArch64:
//
//	cfa := reg[BaseReg] + param
//	if AuxBaseReg == RegLR:  pc = lr, an error unless the frame is the
//	                         innermost or was interrupted by a signal
//	else: at := reg[AuxBaseReg] + AuxParam; pc = *at,
//	      and fp = *(at - 8) too if FlagFrame
//	strip the pointer authentication code from pc
//	sp = cfa; the caller is not a leaf
//
// FlagLeafOnly marks a rule over a register that callees overwrite (rax, rdi,
// r8, r9, r11, r13, r15): it holds in the innermost frame and in one that a
// signal interrupted, where these registers are known, and nowhere else.
type Info struct {
	Flags       uint8 // Flag bits
	BaseReg     uint8 // the register that the CFA is counted from
	AuxBaseReg  uint8 // the register that the saved frame pointer is counted from
	MergeOpcode uint8 // 0, or where in the row Param changes by 8
	Param       int32 // offset to BaseReg in bytes, or a Command
	AuxParam    int32 // offset to AuxBaseReg in bytes
}

// Flag bits of Info.Flags.
const (
	FlagCommand    = 1 << 0 // Param is a Command
	FlagFrame      = 1 << 1 // AArch64: a whole frame record, fp and lr, is saved
	FlagLeafOnly   = 1 << 2 // the rule needs a register that only a leaf has
	FlagDerefCFA   = 1 << 3 // the CFA is read from memory
	FlagRegisterRA = 1 << 4 // the return address is in a register
)

// Registers of Info.BaseReg and Info.AuxBaseReg.
const (
	RegInvalid = 0 // none: reads as 0
	RegCFA     = 1 // the CFA just computed
	RegPC      = 2
	RegSP      = 3
	RegFP      = 4 // rbp, x29
	RegLR      = 5 // x30
	RegRAX     = 6
	RegRDI     = 7
	RegR8      = 8
	RegR9      = 9
	RegR11     = 10
	RegR13     = 11
	RegR15     = 12
)

// Commands, the values of Info.Param under FlagCommand.
const (
	// CommandInvalid: nothing is known about this address. The stack is cut.
	CommandInvalid = 0

	// CommandStop: a thread's or program's first function. The stack is
	// complete.
	CommandStop = 1

	// CommandPLT: an entry of an x86-64 procedure linkage table, 16 bytes of
	// which the last five run with the relocation index pushed:
	// cfa = sp + 8 + (pc&15 >= 11 ? 8 : 0), fp kept, pc = *(cfa - 8), sp = cfa
	// (https://hal.inria.fr/hal-02297690, page 4).
	CommandPLT = 2

	// CommandSignal: the signal trampoline. All registers of the interrupted
	// code are in the frame, which may be a leaf: look up its pc as it is.
	// x86-64: struct sigcontext at sp+40 (r8 0, r9 1, r11 3, r13 5, r15 7,
	// rdi 8, rbp 10, rax 13, rsp 15, rip 16, in words). AArch64: regs at
	// sp+312 (x0 0 ... x29 29, x30 30, sp 31, pc 32).
	CommandSignal = 3

	// CommandFramePointer: Go code. fp = *fp, pc = *(fp + 8), sp = fp + 16,
	// with the old fp on the right-hand sides. AArch64: sp becomes unknown.
	CommandFramePointer = 4
)

const (
	// MergeNegative in Info.MergeOpcode says that Param falls by 8 rather
	// than rises. The other bits are the number of bytes from the start of
	// the row at which it does, 1 or 2: a push or pop of a register.
	MergeNegative = 0x80

	// DerefMask selects the bits of Param that, times DerefMultiplier, are
	// added after the dereference of FlagDerefCFA. Offsets into a stack are
	// multiples of eight, so that the bits are free.
	DerefMask = 7
	// DerefMultiplier is what the bits of DerefMask count in, in bytes.
	DerefMultiplier = 8
)

// invalid is the row of an address that nothing is known about.
var invalid = Info{Flags: FlagCommand, Param: CommandInvalid}

// At returns the rule that holds rowDelta bytes after the start of the row:
// Info with Param adjusted and no MergeOpcode.
func (i Info) At(rowDelta uint32) Info {
	if i.MergeOpcode == 0 {
		return i
	}
	if rowDelta >= uint32(i.MergeOpcode&^MergeNegative) {
		if i.MergeOpcode&MergeNegative != 0 {
			i.Param -= 8
		} else {
			i.Param += 8
		}
	}
	i.MergeOpcode = 0
	return i
}

// infoOf converts the extractor's form, which is the same but for its name.
func infoOf(u sdtypes.UnwindInfo) Info {
	return Info{
		Flags:       u.Flags,
		BaseReg:     u.BaseReg,
		AuxBaseReg:  u.AuxBaseReg,
		MergeOpcode: u.MergeOpcode,
		Param:       u.Param,
		AuxParam:    u.AuxParam,
	}
}

// The numbers above are the extractor's: an index out of range here means that
// a new version of it changed one.
var _ = [1]struct{}{}[0|
	FlagCommand^support.UnwindFlagCommand|
	FlagFrame^support.UnwindFlagFrame|
	FlagLeafOnly^support.UnwindFlagLeafOnly|
	FlagDerefCFA^support.UnwindFlagDerefCfa|
	FlagRegisterRA^support.UnwindFlagRegisterRA|
	RegInvalid^support.UnwindRegInvalid|
	RegCFA^support.UnwindRegCfa|
	RegPC^support.UnwindRegPc|
	RegSP^support.UnwindRegSp|
	RegFP^support.UnwindRegFp|
	RegLR^support.UnwindRegLr|
	RegRAX^support.UnwindRegX86RAX|
	RegRDI^support.UnwindRegX86RDI|
	RegR8^support.UnwindRegX86R8|
	RegR9^support.UnwindRegX86R9|
	RegR11^support.UnwindRegX86R11|
	RegR13^support.UnwindRegX86R13|
	RegR15^support.UnwindRegX86R15]

var _ = [1]struct{}{}[0|
	CommandInvalid^support.UnwindCommandInvalid|
	CommandStop^support.UnwindCommandStop|
	CommandPLT^support.UnwindCommandPLT|
	CommandSignal^support.UnwindCommandSignal|
	CommandFramePointer^support.UnwindCommandFramePointer|
	MergeNegative^support.MergeOpcodeNegative|
	DerefMask^support.UnwindDerefMask|
	DerefMultiplier^support.UnwindDerefMultiplier]
