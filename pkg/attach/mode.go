// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Mode is a way to make links.
type Mode uint8

// The modes, the best first.
const (
	ModeAuto    Mode = iota // the first that the kernel has
	ModeSession             // uprobe sessions: one program at entry and return (Linux 6.13)
	ModeMulti               // uprobe_multi links: one link for many functions (Linux 6.6)
	ModePerf                // a perf event for each function (Linux 4.17)
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeSession:
		return "session"
	case ModeMulti:
		return "multi"
	case ModePerf:
		return "perf"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// attachSession is BPF_TRACE_UPROBE_SESSION of include/uapi/linux/bpf.h. The
// library has no name for it.
const attachSession = ebpf.AttachType(57)

// Supported returns the best mode that the kernel has, so that the caller can
// load the programs for it and no others. An error means that the question could
// not be answered, mostly for lack of privileges.
func Supported() (Mode, error) {
	for _, m := range []Mode{ModeSession, ModeMulti} {
		switch err := supports(m); {
		case err == nil:
			return m, nil
		case !errors.Is(err, ebpf.ErrNotSupported):
			return ModeAuto, err
		}
	}
	return ModePerf, nil
}

// supports returns nil if the kernel has a mode, ErrNotSupported if not, and
// another error if that could not be found out.
func supports(m Mode) error {
	switch m {
	case ModeSession:
		return probeLink(attachSession)
	case ModeMulti:
		return probeLink(ebpf.AttachTraceUprobeMulti)
	}
	return nil
}

// probeLink finds out whether the kernel makes links of an attach type, and
// filters them by process. No probe is set: the file is the root directory and
// the PID impossible. bpf_uprobe_multi_link_attach of kernel/trace/bpf_trace.c
// first refuses an unknown attach type, then the PID (EINVAL since commit
// 46ba0e49b642, which came with 6.10 and the stable kernels of its time), then a
// file that is none (EBADF). Before that commit a link with a PID fires in the
// one thread of that number, which makes it useless here. Since an unknown
// attach type is EINVAL too, it is asked for without a PID first.
func probeLink(at ebpf.AttachType) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "probe_uprobe",
		Type:         ebpf.Kprobe,
		AttachType:   at,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.E2BIG):
		return fmt.Errorf("programs of attach type %d: %w", at, ebpf.ErrNotSupported)
	case err != nil:
		return fmt.Errorf("asking for uprobe links: %w (it takes CAP_BPF and CAP_PERFMON: try sudo)", err)
	}
	defer prog.Close()

	root := linkRequest{path: "/", offsets: []uint64{0}}
	switch err := root.probe(prog, at); {
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("uprobe links of attach type %d: %w", at, ebpf.ErrNotSupported)
	case !errors.Is(err, unix.EBADF):
		return fmt.Errorf("asking for uprobe links: %w (it takes CAP_BPF and CAP_PERFMON: try sudo)", err)
	}
	root.pid = ^uint32(0)
	switch err := root.probe(prog, at); {
	case errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.EBADF):
		return fmt.Errorf("uprobe links that are filtered by process, not by thread: %w", ebpf.ErrNotSupported)
	default:
		return fmt.Errorf("asking for uprobe links: %w", err)
	}
}

// linkRequest is what BPF_LINK_CREATE takes for uprobe_multi and sessions.
type linkRequest struct {
	path    string
	offsets []uint64
	cookies []uint64 // as many, or none
	pid     uint32   // 0: every process
}

// linkCreate is the struct of BPF_LINK_CREATE in union bpf_attr with its member
// uprobe_multi (include/uapi/linux/bpf.h, Linux 6.6).
type linkCreate struct {
	progFD, targetFD, attachType, flags uint32
	path, offsets, refCtrs, cookies     unsafe.Pointer
	count, multiFlags, pid, _           uint32
}

// create makes the link and returns its descriptor, which the caller owns. The
// kernel takes the offsets in their order.
func (r *linkRequest) create(prog *ebpf.Program, at ebpf.AttachType) (int, error) {
	path, err := unix.BytePtrFromString(r.path)
	if err != nil {
		return -1, err
	}
	attr := linkCreate{
		progFD:     uint32(prog.FD()),
		attachType: uint32(at),
		path:       unsafe.Pointer(path),
		offsets:    unsafe.Pointer(unsafe.SliceData(r.offsets)),
		cookies:    unsafe.Pointer(unsafe.SliceData(r.cookies)),
		count:      uint32(len(r.offsets)),
		pid:        r.pid,
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

// probe makes the link, and takes it away should that succeed.
func (r *linkRequest) probe(prog *ebpf.Program, at ebpf.AttachType) error {
	fd, err := r.create(prog, at)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
