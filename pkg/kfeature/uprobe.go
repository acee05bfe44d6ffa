// SPDX-License-Identifier: Apache-2.0

package kfeature

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
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

// probeUprobeMulti makes a link for this process, then asks what its filter
// means. Before Linux commit 46ba0e49b642 (6.10, and in the stable kernels of
// its time) a link fired only in the one thread that has the process's number,
// and an impossible number was looked for instead of refused.
func probeUprobeMulti() error {
	if err := probeMultiLink(ebpf.AttachTraceUprobeMulti, uint32(os.Getpid())); err != nil {
		return err
	}
	const impossible = 1 << 31
	switch err := probeMultiLink(ebpf.AttachTraceUprobeMulti, impossible); {
	case errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.ESRCH):
		return lacking{fmt.Errorf("links are filtered by thread, not by process: %w", err)}
	case err == nil:
		return errors.New("a link for an impossible process was made")
	default:
		return err
	}
}

func probeUprobeSession() error { return probeMultiLink(attachSession, uint32(os.Getpid())) }

// probeMultiLink makes a link of a kind for a process.
func probeMultiLink(at ebpf.AttachType, pid uint32) error {
	prog, err := uprobeProgram(at, 0)
	if err != nil {
		return err
	}
	defer prog.Close()
	return withFile(func(path string) error {
		fd, err := createMultiLink(prog, at, path, pid)
		if err != nil {
			return refused(fmt.Errorf("making link: %w", err))
		}
		return unix.Close(fd)
	})
}

// multiLinkRequest is the part of union bpf_attr that BPF_LINK_CREATE takes for
// uprobes (include/uapi/linux/bpf.h). The library makes no session links, and
// says "not supported" of some refusals that are not.
type multiLinkRequest struct {
	progFD     uint32
	targetFD   uint32
	attachType uint32
	flags      uint32
	path       unsafe.Pointer
	offsets    unsafe.Pointer
	refCtrs    unsafe.Pointer
	cookies    unsafe.Pointer
	count      uint32
	multiFlags uint32
	pid        uint32
	_          uint32
}

func createMultiLink(prog *ebpf.Program, at ebpf.AttachType, path string, pid uint32) (fd int, err error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, fmt.Errorf("naming %q: %w", path, err)
	}
	offset, counter, cookie := uint64(probeOffset), uint64(counterOffset), uint64(1)
	r := multiLinkRequest{
		progFD:     uint32(prog.FD()),
		attachType: uint32(at),
		path:       unsafe.Pointer(name),
		offsets:    unsafe.Pointer(&offset),
		refCtrs:    unsafe.Pointer(&counter),
		cookies:    unsafe.Pointer(&cookie),
		count:      1,
		pid:        pid,
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range []any{name, &offset, &counter, &cookie} {
		pin.Pin(p)
	}
	got, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(&r)), unsafe.Sizeof(r)-4)
	runtime.KeepAlive(prog)
	if errno != 0 {
		return -1, errno
	}
	return int(got), nil
}
