// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// pin opens the pidfd of the process behind p.dir. Numbers in /proc and numbers
// in system calls agree only if /proc is of our own PID namespace, so the
// number is translated first and the result compared with what /proc says of
// the pidfd.
func (p *Process) pin() error {
	depth, err := ownDepth()
	if err != nil {
		return err
	}
	var status procfs.ProcStatus
	err = p.withProc(func(proc procfs.Proc) (err error) {
		status, err = proc.NewStatus()
		return err
	})
	switch {
	case errors.Is(err, ErrExited):
		// Under hidepid the directory itself may be there, but nothing in it.
		return hiddenOrMissing(p.pid)
	case err != nil:
		return p.permission("reading its status", err)
	}
	if status.TGID != p.pid {
		return &ThreadError{TID: p.pid, PID: status.TGID}
	}
	if depth >= len(status.NSpids) {
		return otherNamespace()
	}
	p.local = int(status.NSpids[depth])
	fd, err := unix.PidfdOpen(p.local, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		if depth > 0 {
			return otherNamespace()
		}
		return fmt.Errorf("%w (%w)", ErrExited, err)
	case err != nil:
		return fmt.Errorf("opening a pidfd: %w", err)
	}
	p.pidfd = os.NewFile(uintptr(fd), "pidfd")
	shown, err := pidfdPID(fd)
	if err != nil {
		return fmt.Errorf("reading what a pidfd refers to: %w", err)
	}
	switch {
	case shown == p.pid:
		return nil
	case shown == exitedPID:
		return ErrExited
	default:
		return otherNamespace()
	}
}

func otherNamespace() error {
	return fmt.Errorf("%w (run it in the PID namespace that /proc is of, for a container with --pid=host)", ErrOtherNamespace)
}

// ownDepth returns how many PID namespaces we are below that of /proc: 0 if
// /proc is of our own.
func ownDepth() (int, error) {
	self, err := procfs.Self()
	if err != nil {
		// /proc/self leads nowhere for a process that this /proc does not show.
		if errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("%w (/proc is of a PID namespace that does not contain us: mount one of our own)", ErrOtherNamespace)
		}
		return 0, err
	}
	status, err := self.NewStatus()
	if err != nil {
		return 0, err
	}
	return len(status.NSpids) - 1, nil
}

// exitedPID is what fdinfo shows for a pidfd of a reaped process.
const exitedPID = -1

// pidfdPID returns the number, in the PID namespace of /proc, of the process
// that a pidfd of ours refers to: the Pid line of its fdinfo (pidfd_show_fdinfo
// of the kernel; 0 stands for a process that this /proc does not show).
func pidfdPID(fd int) (int, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(info)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("fdinfo without a Pid line")
}

// hiddenOrMissing tells apart why /proc has no such PID: there is none, or
// /proc was mounted with hidepid and we may not see it.
func hiddenOrMissing(pid int) error {
	// Signal 0 only asks whether the process exists. EPERM says it does.
	err := unix.Kill(pid, 0)
	if err == nil || errors.Is(err, unix.EPERM) {
		if depth, derr := ownDepth(); derr == nil && depth == 0 {
			return &PermissionError{
				PID: pid, Op: "looking it up in /proc", Err: unix.ENOENT, Missing: []string{"CAP_SYS_PTRACE"},
				Why: "it exists, and /proc is mounted with hidepid", Remedy: "run it with sudo",
			}
		}
	}
	return ErrNoProcess
}
