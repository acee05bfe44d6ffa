// SPDX-License-Identifier: Apache-2.0

package unwind

// Registers are what a frame is known by while it is unwound: those of a caller,
// so that the ones a leaf's rule may ask for (rax and so on) are not among them.
type Registers struct{ PC, SP, FP uint64 }

// Result says what a Step came to.
type Result uint8

// The results of Step.
const (
	Caller  Result = iota // the registers are the caller's now
	Done                  // there is no caller: the stack is complete
	Invalid               // the rule is invalid, or asks for a register of a leaf
	Unread                // stack memory could not be read
)

// Registers in a signal frame, in words from sigFrame bytes on
// (arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h).
const (
	wordBytes = 8
	sigFrame  = 40
	sigFP     = 10
	sigSP     = 15
	sigPC     = 16
)

// Step moves r from a frame to its caller by the rule that holds at the frame's
// pc (see Table.Lookup), on x86-64. read returns a word of the stack. leaf tells
// that the new pc is an instruction that a signal interrupted, to be looked up
// as it is and not as a return address. It does what unwind_frame of
// bpf/lib/unwind.h does.
func Step(i Info, rowDelta uint32, r *Registers, read func(addr uint64) (uint64, bool)) (res Result, leaf bool) {
	var cfa uint64
	i = i.At(rowDelta)
	switch {
	case i.Flags&FlagCommand == 0:
		if i.Flags&(FlagLeafOnly|FlagRegisterRA) != 0 {
			return Invalid, false
		}
		var ok bool
		if cfa, ok = i.cfa(r, read); !ok {
			return Unread, false
		}
		i.restoreFP(r, cfa, read)
	case i.Param == CommandStop:
		return Done, false
	case i.Param == CommandPLT:
		cfa = r.SP + wordBytes
		if r.PC&15 >= 11 {
			cfa += wordBytes
		}
	case i.Param == CommandSignal:
		return stepSignal(r, read)
	case i.Param == CommandFramePointer:
		fp, ok := read(r.FP)
		if !ok {
			return Unread, false
		}
		cfa = r.FP + 2*wordBytes
		r.FP = fp
	default:
		return Invalid, false
	}
	pc, ok := read(cfa - wordBytes)
	if !ok {
		return Unread, false
	}
	r.PC, r.SP = pc, cfa
	if pc == 0 {
		return Done, false
	}
	return Caller, false
}

func (i Info) base(which uint8, r *Registers, cfa uint64) uint64 {
	switch which {
	case RegCFA:
		return cfa
	case RegPC:
		return r.PC
	case RegSP:
		return r.SP
	case RegFP:
		return r.FP
	}
	return 0
}

func (i Info) cfa(r *Registers, read func(uint64) (uint64, bool)) (uint64, bool) {
	param, post := i.Param, int32(0)
	if i.Flags&FlagDerefCFA != 0 {
		post = (param & DerefMask) * DerefMultiplier
		param &^= DerefMask
	}
	cfa := i.base(i.BaseReg, r, 0) + uint64(int64(param))
	if i.Flags&FlagDerefCFA == 0 {
		return cfa, true
	}
	word, ok := read(cfa)
	return word + uint64(int64(post)), ok
}

func (i Info) restoreFP(r *Registers, cfa uint64, read func(uint64) (uint64, bool)) {
	if i.AuxBaseReg != RegInvalid {
		if fp, ok := read(i.base(i.AuxBaseReg, r, cfa) + uint64(int64(i.AuxParam))); ok {
			r.FP = fp
		}
	} else if i.BaseReg == RegFP {
		r.FP = 0
	}
}

func stepSignal(r *Registers, read func(uint64) (uint64, bool)) (Result, bool) {
	at := r.SP + sigFrame
	fp, ok1 := read(at + sigFP*wordBytes)
	sp, ok2 := read(at + sigSP*wordBytes)
	pc, ok3 := read(at + sigPC*wordBytes)
	if !ok1 || !ok2 || !ok3 {
		return Unread, false
	}
	r.PC, r.SP, r.FP = pc, sp, fp
	return Caller, true
}
