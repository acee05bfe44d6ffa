// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// ErrMachine means code of an instruction set that probes are not placed in.
var ErrMachine = errors.New("instruction set is not supported")

// Placement says at which instruction of a function its probe goes.
type Placement struct {
	// Offset of the instruction from the function's start, in bytes.
	Offset uint64
	// Emulated is set if the kernel emulates the instruction in the trap
	// handler. Otherwise it executes a copy of it in single-step mode, which
	// takes a second trap and makes the hit two to four times as dear.
	Emulated bool
	// SkipsNull is set if the probe stands behind the function's own test for
	// NULL, so that free(NULL) does not hit it.
	SkipsNull bool
	// Args tells where the function's arguments are by then, if some have moved:
	// argument n is in the register of argument Args[n]. It is nil if all are
	// still in their own.
	Args []int
	// Instruction is the instruction in the assembler's syntax of its vendor.
	Instruction string
	// Reason tells why no emulated instruction was found; empty if one was.
	Reason string
}

// String describes the placement for people.
func (p Placement) String() string {
	s := fmt.Sprintf("+%#x %q", p.Offset, p.Instruction)
	switch {
	case !p.Emulated:
		s += " single-stepped: " + p.Reason
	case p.SkipsNull:
		s += " behind the test for NULL"
	case p.Args != nil:
		s += " with moved arguments"
	}
	return s
}

// function returns what a probe at the placement is to be told of a function:
// fn, or a copy with the arguments where they are by then.
func (p Placement) function(fn *alloc.Function) *alloc.Function {
	if p.Args == nil {
		return fn
	}
	moved := *fn
	for _, arg := range []*int{&moved.Size, &moved.Count, &moved.Ptr, &moved.Out} {
		if *arg != alloc.NoArg {
			*arg = p.Args[*arg]
		}
	}
	return &moved
}

// Place chooses the instruction of a function at which its probe costs least.
// code holds the function's machine code from its first byte at the virtual
// address vaddr on, as much of it as there is.
//
// It is the first instruction of the straight line from the function's start
// which the kernel emulates, at which every argument that fn names is still in
// its register, or in that of another argument, and, for a function whose return
// is probed, the stack pointer and the return address are still where the caller
// left them, and to which no jump inside the function leads. Exactly one such hit
// then belongs to each call. A free may stand behind its function's own test for
// NULL. Without such an instruction it is the function's start.
//
// The only error is ErrMachine.
func Place(code []byte, vaddr uint64, machine elf.Machine, fn *alloc.Function) (Placement, error) {
	switch machine {
	case elf.EM_X86_64:
		return placeX64(code, vaddr, fn), nil
	case elf.EM_AARCH64:
		return placeA64(code, vaddr, fn), nil
	}
	return Placement{}, fmt.Errorf("placing a probe in %v code: %w", machine, ErrMachine)
}

// start is the placement that always works.
func start(instruction, reason string) Placement {
	return Placement{Instruction: instruction, Reason: reason}
}
