// SPDX-License-Identifier: Apache-2.0

// Package uprobelink makes the kernel's links of many uprobes, sessions among
// them, which the BPF library does not make. It owns the system call alone: what
// it makes belongs to the caller.
package uprobelink

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// AttachSession is BPF_TRACE_UPROBE_SESSION of include/uapi/linux/bpf.h (Linux
// commit 535a3692ba72, 6.13). The library has no name for it.
const AttachSession = ebpf.AttachType(57)

// Request describes a link.
type Request struct {
	Path    string   // of the file, such as /proc/self/fd/3
	Offsets []uint64 // into the file; the kernel takes them in this order
	Cookies []uint64 // one for each offset, or none
	PID     uint32   // of the process in which the programs run; 0: of every one
}

// linkCreate is the struct of BPF_LINK_CREATE in union bpf_attr with its member
// uprobe_multi (include/uapi/linux/bpf.h, Linux 6.6).
type linkCreate struct {
	progFD, targetFD, attachType, flags uint32
	path, offsets, refCtrs, cookies     unsafe.Pointer
	count, multiFlags, pid, _           uint32
}

// Create makes a link of type ebpf.AttachTraceUprobeMulti or [AttachSession] for
// a program loaded for the same, and returns its descriptor, which the caller
// closes. What the kernel says stays a unix.Errno.
func (r *Request) Create(prog *ebpf.Program, at ebpf.AttachType) (fd int, err error) {
	if len(r.Cookies) != 0 && len(r.Cookies) != len(r.Offsets) {
		return -1, fmt.Errorf("%d cookies for %d offsets: %w", len(r.Cookies), len(r.Offsets), unix.EINVAL)
	}
	path, err := unix.BytePtrFromString(r.Path)
	if err != nil {
		return -1, err
	}
	attr := linkCreate{
		progFD:     uint32(prog.FD()),
		attachType: uint32(at),
		path:       unsafe.Pointer(path),
		offsets:    unsafe.Pointer(unsafe.SliceData(r.Offsets)),
		cookies:    unsafe.Pointer(unsafe.SliceData(r.Cookies)),
		count:      uint32(len(r.Offsets)),
		pid:        r.PID,
	}
	for {
		fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		runtime.KeepAlive(prog)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EAGAIN, unix.EINTR:
			continue
		default:
			return -1, errno
		}
	}
}
