// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// exitCodeField is the place of exit_code behind the command name in
// /proc/PID/stat: field 52 of proc_pid_stat(5), the name being field 2.
const exitCodeField = 52 - 3

// Done returns a channel that is closed when the process has exited, whether or
// not its parent has waited for it. After Close it may stay open forever.
func (p *Process) Done() <-chan struct{} { return p.done }

// Alive reports whether the process still runs. It is false once the process
// has exited, so also when its PID belongs to another by now, and after Close.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
	}
	exited, err := p.exited()
	return err == nil && !exited
}

// ExitStatus returns how the process ended. It is not known while the process
// runs, nor if its parent reaped it before it could be looked at and the kernel
// does not keep the status with the pidfd (before 6.15).
func (p *Process) ExitStatus() (status unix.WaitStatus, known bool) {
	if st := p.exit.Load(); st != nil {
		return *st, true
	}
	if p.Alive() {
		return 0, false
	}
	p.learnExit()
	if st := p.exit.Load(); st != nil {
		return *st, true
	}
	return 0, false
}

// wait closes done when the pidfd becomes readable, which is the exit. Close
// ends it.
func (p *Process) wait() {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return
	}
	err = conn.Read(func(fd uintptr) bool { return readable(int(fd)) })
	if err != nil {
		return
	}
	p.learnExit()
	close(p.done)
}

// exited asks the pidfd.
func (p *Process) exited() (bool, error) {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return false, err
	}
	var is bool
	err = conn.Control(func(fd uintptr) { is = readable(int(fd)) })
	return is, err
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0
	}
}

// learnExit stores the exit status if it can be had: from the zombie's stat
// until it is reaped, from the pidfd after that (PIDFD_INFO_EXIT, Linux 6.15).
func (p *Process) learnExit() {
	if st, ok := p.zombieStatus(); ok {
		p.exit.Store(&st)
		return
	}
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { // fails only after Close
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if unix.IoctlPidfdInfo(int(fd), &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			st := unix.WaitStatus(info.Exit_code)
			p.exit.Store(&st)
		}
	})
}

func (p *Process) zombieStatus() (unix.WaitStatus, bool) {
	f, err := p.openFile("stat")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, false
	}
	// The name may hold spaces and parentheses; nothing behind it does.
	_, rest, ok := cutLast(string(text), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) <= exitCodeField || fields[0] != "Z" {
		return 0, false
	}
	code, err := strconv.Atoi(fields[exitCodeField])
	if err != nil {
		return 0, false
	}
	return unix.WaitStatus(code), true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
