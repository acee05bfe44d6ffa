// SPDX-License-Identifier: Apache-2.0

package kfeature

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/internal/uprobelink"
)

// Where in the file of withFile probes are set, and where their reference
// counter (two bytes) is.
const (
	probeOffset   = 64
	counterOffset = 128
	fileSize      = 4096
)

// withFile calls f with the path of a file that uprobes can be set on. Uprobes
// are a matter of files: one in a memory file that nobody maps is registered
// and filtered like any other, and there is no code for it to trap in.
func withFile(f func(path string) error) error {
	fd, err := unix.MemfdCreate("kfeature", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("making a memory file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd:kfeature")
	defer file.Close()
	if err := file.Truncate(fileSize); err != nil {
		return fmt.Errorf("making a memory file: %w", err)
	}
	return f(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// perfUprobe sets a uprobe by a perf event and a link on it.
func perfUprobe(prog *ebpf.Program, o *link.UprobeOptions) error {
	return withFile(func(path string) error {
		ex, err := link.OpenExecutable(path)
		if err != nil {
			return fmt.Errorf("opening %q: %w", path, err)
		}
		o.Address, o.PID = probeOffset, os.Getpid()
		l, err := ex.Uprobe("", prog, o)
		if err != nil {
			return fmt.Errorf("making link: %w", err)
		}
		return l.Close()
	})
}

func probeUprobeCookie() error { return probePerfUprobe(&link.UprobeOptions{Cookie: 1}) }
func probeUprobeCounter() error {
	return probePerfUprobe(&link.UprobeOptions{RefCtrOffset: counterOffset})
}
func probePerfUprobe(o *link.UprobeOptions) error {
	prog, err := uprobeProgram(0, 0)
	if err != nil {
		return err
	}
	defer prog.Close()
	return refused(perfUprobe(prog, o))
}

// probeSleepable attaches a program that may sleep and calls the helper that
// needs it to. The address it is given is not mapped, and not read here.
func probeSleepable() error {
	prog, err := uprobeProgram(0, unix.BPF_F_SLEEPABLE,
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -8),
		asm.Mov.Imm(asm.R2, 8),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnCopyFromUser.Call(),
	)
	if err != nil {
		return err
	}
	defer prog.Close()
	return refused(perfUprobe(prog, &link.UprobeOptions{}))
}

func probeUprobeMulti() error   { return probeMultiLink(ebpf.AttachTraceUprobeMulti) }
func probeUprobeSession() error { return probeMultiLink(uprobelink.AttachSession) }

// probeMultiLink finds out whether the kernel makes links of a kind, and filters
// them by process. Every run asks for these, and the kernel takes some 50 ms to
// take a probe away, so none is set: the file is the root directory and the PID
// impossible. bpf_uprobe_multi_link_attach of kernel/trace/bpf_trace.c first
// refuses an unknown kind, then the PID (EINVAL since Linux commit 46ba0e49b642,
// 6.10 and the stable kernels of its time), then a file that is none (EBADF).
// Before that commit a link with a PID fires in the one thread of that number,
// which makes it useless here. Since an unknown kind is EINVAL too, it is asked
// for without a PID first, as libbpf does (probe_uprobe_multi_link).
func probeMultiLink(at ebpf.AttachType) error {
	prog, err := uprobeProgram(at, 0)
	if err != nil {
		return err
	}
	defer prog.Close()
	if err := linkToFolder(prog, at, 0); !errors.Is(err, unix.EBADF) {
		return refused(fmt.Errorf("making link: %w", err))
	}
	const impossible = 1 << 31
	switch err := linkToFolder(prog, at, impossible); {
	case errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.EBADF):
		return lacking{errors.New("links are filtered by thread, not by process")}
	default:
		return fmt.Errorf("making link: %w", err)
	}
}

// linkToFolder asks for a link that cannot be, and returns why.
func linkToFolder(prog *ebpf.Program, at ebpf.AttachType, pid uint32) error {
	r := uprobelink.Request{Path: "/", Offsets: []uint64{probeOffset}, PID: pid}
	fd, err := r.Create(prog, at)
	if err == nil {
		unix.Close(fd)
		return errors.New("a folder was probed")
	}
	return err
}
