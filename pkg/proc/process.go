// SPDX-License-Identifier: Apache-2.0

// Package proc tells what a process is: its identity, mappings, threads,
// memory and namespaces, read from /proc and never from inside the process.
//
// A PID names a process only as long as it lives. Open therefore pins the
// process twice: by a descriptor of its /proc directory, in which lookups fail
// once it is gone even if the number has been given away again, and by a pidfd,
// which tells of the exit. Everything that a Process answers is of the process
// that was opened, or an error that is ErrExited.
//
// The target is hostile until proven otherwise: it chooses its own command
// line, the names of its files and what those names lead to, while this package
// usually runs as root. Files are opened inside the target's root, regular
// files only, and checked against the mapping that named them.
package proc

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// kernelThread is PF_KTHREAD of include/linux/sched.h, as field 9 of
// /proc/PID/stat shows it. Field positions are those of proc_pid_stat(5).
const kernelThread = 0x00200000

// Process is one running process, pinned at Open: a PID given to another
// process later is never mistaken for it. The methods may be called from
// several goroutines. Close releases it.
type Process struct {
	pid     int // in the PID namespace of /proc
	local   int // in our own PID namespace, for system calls
	start   uint64
	exe     string
	command []string

	dir   *os.File // /proc/PID, O_PATH
	pidfd *os.File // in the runtime's poller
	done  chan struct{}

	closing sync.Once
	exit    atomic.Pointer[unix.WaitStatus] // nil until known
	vmRead  atomic.Bool                     // process_vm_readv is refused here: use /proc/PID/mem
}

// Open pins the process that has the number pid in /proc and checks that it can
// be looked into. The error is one of ErrNoProcess, ErrKernelThread, ErrZombie,
// ErrOtherNamespace, ErrExited, a *ThreadError (which is ErrThread) or a
// *PermissionError (which is ErrPermission), unless /proc itself is unusable.
func Open(pid int) (*Process, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("opening process %d: %w", pid, ErrNoProcess)
	}
	p := &Process{pid: pid, done: make(chan struct{})}
	if err := p.open(); err != nil {
		p.release()
		if errors.Is(err, ErrThread) {
			return nil, err // says it all
		}
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	go p.wait()
	return p, nil
}

// OpenStarted is Open for a process seen before: it returns ErrReused if the
// number now belongs to a process with another start time (StartTicks).
func OpenStarted(pid int, startTicks uint64) (*Process, error) {
	p, err := Open(pid)
	if err != nil {
		return nil, err
	}
	if p.start != startTicks {
		p.Close()
		return nil, fmt.Errorf("opening process %d started at tick %d: %w (it started at tick %d)",
			pid, startTicks, ErrReused, p.start)
	}
	return p, nil
}

func (p *Process) open() error {
	dir, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(p.pid)), unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hiddenOrMissing(p.pid)
	case err != nil:
		return err
	}
	p.dir = dir
	if err := p.pin(); err != nil {
		return err
	}
	// From here on a success of any read through p.dir proves that the pidfd is
	// of the same process: the number cannot have been given away before.
	stat, err := p.stat()
	if err != nil {
		return err
	}
	p.start = stat.Starttime
	if err := refuseKind(stat); err != nil {
		return err
	}
	return p.access()
}

// refuseKind tells the processes apart that have no memory to look into.
func refuseKind(stat procfs.ProcStat) error {
	switch {
	case stat.Flags&kernelThread != 0:
		return fmt.Errorf("%w %q", ErrKernelThread, stat.Comm)
	case (stat.State == "Z" || stat.State == "X") && stat.NumThreads > 1:
		return fmt.Errorf("%w: its main thread has exited, and the memory of the %d that still run cannot be reached through it",
			ErrZombie, stat.NumThreads-1)
	case stat.State == "Z" || stat.State == "X":
		return fmt.Errorf("%w %q (it has exited; its parent, process %d, has not waited for it)",
			ErrZombie, stat.Comm, stat.PPID)
	}
	return nil
}

// access reads what Open keeps and finds out whether more could be read.
func (p *Process) access() error {
	maps, err := p.openFile("maps")
	if err != nil {
		return p.permission("reading its mappings", err)
	}
	defer maps.Close()
	exe, err := p.readlink("exe")
	if err != nil {
		return p.permission("reading its executable's name", err)
	}
	p.exe = strings.TrimSuffix(exe, deletedSuffix)
	return p.withProc(func(proc procfs.Proc) error {
		p.command, err = proc.CmdLine()
		return err
	})
}

// PID returns the number of the process in the PID namespace of /proc: the one
// that ps shows and that the user typed.
func (p *Process) PID() int { return p.pid }

// LocalPID returns the number of the process in the PID namespace of the
// caller, which is what system calls take. It differs from PID only where /proc
// is of an outer PID namespace.
func (p *Process) LocalPID() int { return p.local }

// StartTicks returns the start time in clock ticks since boot (field 22 of
// /proc/PID/stat). Together with the PID it identifies a process.
func (p *Process) StartTicks() uint64 { return p.start }

// Exe returns the path of the executable at Open, as seen from the caller's
// root. It is the target's to choose and may hold any byte.
func (p *Process) Exe() string { return p.exe }

// Command returns the command line at Open. It is the target's to choose, may
// hold any byte and may be empty.
func (p *Process) Command() []string { return slices.Clone(p.command) }

// Close releases the descriptors. It is idempotent. Done is not closed by it.
func (p *Process) Close() error {
	p.closing.Do(p.release)
	return nil
}

func (p *Process) release() {
	if p.pidfd != nil {
		p.pidfd.Close()
	}
	if p.dir != nil {
		p.dir.Close()
	}
}

// Threads returns the ids of the threads in the PID namespace of /proc, sorted.
func (p *Process) Threads() ([]int, error) {
	dir, err := p.openFile("task")
	if err != nil {
		return nil, fmt.Errorf("listing threads of process %d: %w", p.pid, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing threads of process %d: %w", p.pid, p.gone(err))
	}
	tids := make([]int, 0, len(names))
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("listing threads of process %d: %w", p.pid, err)
		}
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	return tids, nil
}

// NSPIDs returns the numbers of the process, from the PID namespace of /proc
// inwards to its own (NSpid of proc_pid_status(5)).
func (p *Process) NSPIDs() ([]int, error) {
	var pids []int
	err := p.withProc(func(proc procfs.Proc) error {
		status, err := proc.NewStatus()
		for _, n := range status.NSpids {
			pids = append(pids, int(n))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading PIDs of process %d: %w", p.pid, err)
	}
	return pids, nil
}

// PIDNamespace returns the device and inode that identify the PID namespace of
// the process, as stat(2) gives them. bpf_get_ns_current_pid_tgid compares the
// device with the kernel's own encoding, major<<20 | minor.
func (p *Process) PIDNamespace() (dev, ino uint64, err error) {
	return p.Namespace("pid")
}

// Namespace returns the device and inode of one of the process's namespaces,
// named as in /proc/PID/ns ("pid", "mnt", "user", ...).
func (p *Process) Namespace(name string) (dev, ino uint64, err error) {
	var st unix.Stat_t
	err = p.at(func(dirfd int) error { return unix.Fstatat(dirfd, "ns/"+name, &st, 0) })
	if err != nil {
		return 0, 0, fmt.Errorf("reading %s namespace of process %d: %w", name, p.pid, err)
	}
	return uint64(st.Dev), st.Ino, nil
}

// Class returns the ELF class of the executable: elf.ELFCLASS32 or
// elf.ELFCLASS64.
func (p *Process) Class() (elf.Class, error) {
	f, err := p.OpenExe()
	if err != nil {
		return elf.ELFCLASSNONE, err
	}
	defer f.Close()
	var ident [elf.EI_NIDENT]byte
	if _, err := io.ReadFull(f, ident[:]); err != nil {
		return elf.ELFCLASSNONE, fmt.Errorf("reading ELF header of process %d: %w", p.pid, err)
	}
	class := elf.Class(ident[elf.EI_CLASS])
	if string(ident[:len(elf.ELFMAG)]) != elf.ELFMAG || class != elf.ELFCLASS32 && class != elf.ELFCLASS64 {
		return elf.ELFCLASSNONE, fmt.Errorf("reading ELF header of process %d: not an ELF file: % x", p.pid, ident[:5])
	}
	return class, nil
}

// stat reads /proc/PID/stat.
func (p *Process) stat() (stat procfs.ProcStat, err error) {
	err = p.withProc(func(proc procfs.Proc) error {
		stat, err = proc.Stat()
		return err
	})
	return stat, err
}

// withProc lets procfs read the pinned process. The library opens files by PID,
// and a PID can change hands between two reads; rooted at the task directory of
// the pinned /proc/PID, where the main thread has the same files, it cannot
// meet another process.
func (p *Process) withProc(read func(procfs.Proc) error) error {
	return p.at(func(dirfd int) error {
		root, err := procfs.NewFS(fmt.Sprintf("/proc/self/fd/%d/task", dirfd))
		if err != nil {
			return err
		}
		proc, err := root.Proc(p.pid)
		if err != nil {
			return err
		}
		return read(proc)
	})
}

// at calls f with the descriptor of /proc/PID, which stays open meanwhile, and
// types the error.
func (p *Process) at(f func(dirfd int) error) error {
	conn, err := p.dir.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := conn.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return fmt.Errorf("%w (%w)", fs.ErrClosed, err)
	}
	return p.gone(ferr)
}

// openFile opens one of the kernel's files in /proc/PID for reading.
func (p *Process) openFile(name string) (*os.File, error) {
	var fd int
	err := p.at(func(dirfd int) (err error) {
		fd, err = unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/%s", p.pid, name)), nil
}

// readlink reads a link in /proc/PID.
func (p *Process) readlink(name string) (string, error) {
	// The kernel writes /proc links into one page (do_proc_readlink of
	// fs/proc/base.c) and fails with ENAMETOOLONG beyond it.
	buf := make([]byte, unix.PathMax)
	var n int
	err := p.at(func(dirfd int) (err error) {
		n, err = unix.Readlinkat(dirfd, name, buf)
		return err
	})
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
