// SPDX-License-Identifier: Apache-2.0

package kfeature

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	cilium "github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/internal/uprobelink"
)

// licence of the probing programs: helpers that read memory ask for GPL.
const licence = "Dual BSD/GPL"

// returnZero ends a program.
var returnZero = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}

func probeMap(t ebpf.MapType) func() error {
	return func() error { return cilium.HaveMapType(t) }
}

func probeLoop() error { return cilium.HaveProgramHelper(ebpf.Kprobe, asm.FnLoop) }

func probeBTF() error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		return lacking{err}
	}
	return nil
}

// uprobeProgram loads a program for uprobes, which does nothing but what comes
// before its end.
func uprobeProgram(at ebpf.AttachType, flags uint32, first ...asm.Instruction) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "kfeature_uprobe",
		Type:         ebpf.Kprobe,
		AttachType:   at,
		Flags:        flags,
		Instructions: append(first, returnZero...),
		License:      licence,
	})
	if err != nil {
		return nil, refused(fmt.Errorf("loading program: %w", err))
	}
	return prog, nil
}

// probeSessionKfuncs loads a program that calls both functions. Newer kernels
// may want the context as their argument, so it is in place.
func probeSessionKfuncs() error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("reading kernel type information: %w", err)
	}
	body := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for _, name := range []string{"bpf_session_is_return", "bpf_session_cookie"} {
		var fn *btf.Func
		if err := spec.TypeByName(name, &fn); errors.Is(err, btf.ErrNotFound) {
			return lacking{fmt.Errorf("no function %s", name)}
		} else if err != nil {
			return fmt.Errorf("finding %s: %w", name, err)
		}
		id, err := spec.TypeID(fn)
		if err != nil {
			return fmt.Errorf("finding %s: %w", name, err)
		}
		call := asm.Instruction{
			OpCode:   asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call),
			Src:      asm.PseudoKfuncCall,
			Constant: int64(id),
		}
		body = append(body, asm.Mov.Reg(asm.R1, asm.R6), call)
	}
	prog, err := uprobeProgram(uprobelink.AttachSession, 0, body...)
	if errors.Is(err, unix.EACCES) {
		// "calling kernel function is not allowed": known, and not for uprobes.
		return lacking{err}
	}
	if err != nil {
		return err
	}
	return prog.Close()
}

// probeTracepoint attaches a program to a tracepoint for an instant.
func probeTracepoint(name string) func() error {
	return func() error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name:         "kfeature_tp",
			Type:         ebpf.Tracing,
			AttachType:   ebpf.AttachTraceRawTp,
			AttachTo:     name,
			Instructions: returnZero,
			License:      licence,
		})
		if errors.Is(err, btf.ErrNotFound) {
			return lacking{err}
		}
		if err != nil {
			return refused(fmt.Errorf("loading program: %w", err))
		}
		defer prog.Close()
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return refused(fmt.Errorf("attaching program: %w", err))
		}
		return l.Close()
	}
}
