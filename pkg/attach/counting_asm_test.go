// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Offsets of the members of counts.
const (
	atHits = 8 * iota
	atReturns
	atKnown
	atUnknown
	atNull
)

// prologue leaves ctx in r6, the row at r10-16 and its counts in r8.
func (c *counting) prologue() asm.Instructions {
	return append(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetAttachCookie.Call(),
		asm.StoreMem(asm.R10, -16, asm.R0, asm.DWord),
	}, append(lookup(c.counts.FD(), -16, "out"), asm.Mov.Reg(asm.R8, asm.R0))...)
}

// lookup leaves the address of a map's value in r0. The key is at r10+key.
func lookup(fd int, key int32, missing string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, fd),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, missing),
	}
}

// increment adds 1 to the member of what a register points to.
func increment(base asm.Register, member int16) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(base, asm.R1, asm.DWord, member),
	}
}

func end() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return()}
}

func join(parts ...asm.Instructions) asm.Instructions {
	var all asm.Instructions
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// argument leaves in r1 the argument whose number is in r9. Its labels start with
// name.
func argument(name string) asm.Instructions {
	insns := asm.Instructions{asm.Mov.Imm(asm.R1, 0)}
	for n, off := range ptRegsArgs {
		skip := fmt.Sprintf("%s-not-%d", name, n)
		insns = append(insns,
			asm.JNE.Imm(asm.R9, int32(n), skip),
			asm.LoadMem(asm.R1, asm.R6, off, asm.DWord),
			asm.Ja.Label(name),
			asm.Mov.Reg(asm.R1, asm.R1).WithSymbol(skip),
		)
	}
	return append(insns, asm.Mov.Reg(asm.R1, asm.R1).WithSymbol(name))
}

// entryBody counts the hit, and the hit with its size.
func (c *counting) entryBody() asm.Instructions {
	return join(increment(asm.R8, atHits), lookup(c.rows.FD(), -16, "out"), asm.Instructions{
		asm.LoadMem(asm.R9, asm.R0, 0, asm.DWord),  // rowConfig.Size
		asm.LoadMem(asm.R7, asm.R0, 16, asm.DWord), // rowConfig.Throw
	}, argument("size"), asm.Instructions{
		asm.Mov.Reg(asm.R9, asm.R1),
		asm.StoreMem(asm.R10, -8, asm.R9, asm.DWord),
	}, lookup(c.sizes.FD(), -16, "counted"), increment(asm.R0, 0), asm.Instructions{
		asm.JEq.Imm(asm.R7, 0, "out").WithSymbol("counted"),
		asm.JLE.Reg(asm.R9, asm.R7, "out"),
		asm.Mov.Imm(asm.R0, 1), // no return probe for this call
		asm.Return(),
	})
}

// retBody counts the return and notes the address that it gives.
func (c *counting) retBody() asm.Instructions {
	return join(increment(asm.R8, atReturns), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R6, ptRegsAX, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "out"),
		asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, c.live.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label("out"),
	})
}

func (c *counting) entry() asm.Instructions {
	return join(c.prologue(), c.entryBody(), end())
}

func (c *counting) ret() asm.Instructions {
	return join(c.prologue(), c.retBody(), end())
}

// session is both, told apart by bpf_session_is_return. It is nil on a kernel
// without.
func (c *counting) session() asm.Instructions {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		c.tb.Fatalf("reading the kernel's BTF: %v", err)
	}
	isReturn, err := spec.AnyTypeByName("bpf_session_is_return")
	if errors.Is(err, btf.ErrNotFound) {
		return nil
	}
	if err != nil {
		c.tb.Fatalf("finding bpf_session_is_return: %v", err)
	}
	id, err := spec.TypeID(isReturn)
	if err != nil {
		c.tb.Fatalf("finding bpf_session_is_return: %v", err)
	}
	return join(c.prologue(), asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		{
			OpCode:   asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call),
			Src:      asm.PseudoKfuncCall,
			Constant: int64(id),
		},
		asm.And.Imm(asm.R0, 1), // a bool
		asm.JEq.Imm(asm.R0, 0, "entry"),
	}, c.retBody(), asm.Instructions{asm.Mov.Reg(asm.R6, asm.R6).WithSymbol("entry")}, c.entryBody(), end())
}

// free counts the hit by whether the address is known.
func (c *counting) free() asm.Instructions {
	return join(c.prologue(), increment(asm.R8, atHits), lookup(c.rows.FD(), -16, "out"), asm.Instructions{
		asm.LoadMem(asm.R9, asm.R0, 8, asm.DWord), // rowConfig.Ptr
	}, argument("pointer"), asm.Instructions{
		asm.JEq.Imm(asm.R1, 0, "null"),
		asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, c.live.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -8),
		asm.FnMapDeleteElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "unknown"),
	}, increment(asm.R8, atKnown), asm.Instructions{
		asm.Ja.Label("out"),
		asm.Mov.Reg(asm.R8, asm.R8).WithSymbol("unknown"),
	}, increment(asm.R8, atUnknown), asm.Instructions{
		asm.Ja.Label("out"),
		asm.Mov.Reg(asm.R8, asm.R8).WithSymbol("null"),
	}, increment(asm.R8, atNull), end())
}
