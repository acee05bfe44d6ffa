// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrNoProcess means that no process has this PID.
	ErrNoProcess = errors.New("no such process")
	// ErrKernelThread means that the PID is of a kernel thread: it has no
	// memory of its own.
	ErrKernelThread = errors.New("kernel thread")
	// ErrZombie means that the process has exited and only waits to be reaped.
	ErrZombie = errors.New("zombie")
	// ErrThread means that the number is of a thread, not of a process. The
	// error is a *ThreadError.
	ErrThread = errors.New("a thread, not a process")
	// ErrPermission means that the process exists and may not be looked into.
	// The error is a *PermissionError.
	ErrPermission = errors.New("permission denied")
	// ErrExited means that the process has exited since Open.
	ErrExited = errors.New("process has exited")
	// ErrReused means that the PID now belongs to another process.
	ErrReused = errors.New("PID belongs to another process by now")
	// ErrOtherNamespace means that /proc shows a process that system calls
	// cannot reach, because /proc is of another PID namespace.
	ErrOtherNamespace = errors.New("process is outside our PID namespace")
	// ErrReplaced means that the name of a mapping no longer leads to the file
	// that is mapped, and the file itself could not be had either.
	ErrReplaced = errors.New("file was replaced or deleted since it was mapped")
	// ErrNotRegular means that a name leads to something other than a regular
	// file of a disk-like file system; it was not opened.
	ErrNotRegular = errors.New("not a regular file")
	// ErrUnmapped means that an address of the target holds no readable memory.
	ErrUnmapped = errors.New("memory is not mapped or not readable")
	// ErrCorrupt means that /proc/PID/maps has a line that cannot be read, or
	// exceeds a limit of the parser.
	ErrCorrupt = errors.New("corrupt mappings")
)

// PermissionError tells why a process may not be looked into. It is
// ErrPermission.
type PermissionError struct {
	PID int
	// Op is what was tried, as a gerund phrase.
	Op string
	// Missing names the capabilities whose lack explains the refusal; empty if
	// all are there and something else forbids it (Why tells).
	Missing []string
	// Why is what probably forbids it, as a clause.
	Why string
	// Remedy is what to try, as an imperative.
	Remedy string
	Err    error
}

// Error implements error.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("%s: %v: %s (%s)", e.Op, e.Err, e.Why, e.Remedy)
}

// Unwrap makes the error ErrPermission as well as its cause.
func (e *PermissionError) Unwrap() []error { return []error{ErrPermission, e.Err} }

// ThreadError tells of which process a thread is. It is ErrThread.
type ThreadError struct {
	TID, PID int
}

// Error implements error.
func (e *ThreadError) Error() string {
	return fmt.Sprintf("%d is a thread of process %d (attach to that)", e.TID, e.PID)
}

// Unwrap makes the error ErrThread.
func (e *ThreadError) Unwrap() error { return ErrThread }

// permission types the error of a first read of the process: EACCES and EPERM
// become a *PermissionError.
func (p *Process) permission(op string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return p.denied(op, err)
}

// denied explains a refusal. The kernel's rule is ptrace_may_access
// (kernel/ptrace.c): the same user and a dumpable target, or CAP_SYS_PTRACE in
// the target's user namespace; then the security modules are asked.
func (p *Process) denied(op string, err error) *PermissionError {
	e := &PermissionError{PID: p.pid, Op: op, Err: err}
	switch has, capErr := hasCapability(unix.CAP_SYS_PTRACE); {
	case capErr != nil:
		e.Why = "our own capabilities cannot be read: " + capErr.Error()
		e.Remedy = "run it as root"
	case !has:
		e.Missing = []string{"CAP_SYS_PTRACE"}
		e.Why = "looking into this process needs CAP_SYS_PTRACE"
		e.Remedy = "run it with sudo"
	case p.otherUserNamespace():
		e.Why = "CAP_SYS_PTRACE is held in another user namespace than the target's"
		e.Remedy = "run it as root on the host, not in a container"
	case yamaScope() == "3":
		e.Why = "kernel.yama.ptrace_scope is 3, which forbids reading any other process"
		e.Remedy = "it can be lowered only by a reboot"
	default:
		e.Why = "CAP_SYS_PTRACE is held, but a security module (SELinux, AppArmor, seccomp) may forbid it"
		e.Remedy = "look for the denial in the kernel log or the audit log"
	}
	return e
}

// otherUserNamespace reports whether the target is known to live in another
// user namespace than we. It is asked after a refusal, when its namespaces may
// be unreadable too; then the answer is no.
func (p *Process) otherUserNamespace() bool {
	_, target, err := p.Namespace("user")
	if err != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/user", &st) == nil && st.Ino != target
}

func yamaScope() string {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hasCapability reports whether a capability is in our effective set.
func hasCapability(number int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading capabilities: %w", err)
	}
	return data[number/32].Effective&(1<<(number%32)) != 0, nil
}

// gone types the errors by which /proc/PID and the system calls tell that the
// process is no more. ENOENT alone may also mean that this process or this
// kernel has no such file.
func (p *Process) gone(err error) error {
	switch {
	case errors.Is(err, ErrExited):
		return err
	case errors.Is(err, unix.ESRCH),
		errors.Is(err, fs.ErrNotExist) && (p.pidfd == nil || !p.Alive()):
		// The name of the file tells nothing, being relative to a descriptor.
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err
		}
		return fmt.Errorf("%w (%w)", ErrExited, err)
	}
	return err
}
