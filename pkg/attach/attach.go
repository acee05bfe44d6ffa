// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
)

// ErrClosed means that a closed Attacher was used.
var ErrClosed = errors.New("attacher is closed")

// notSupported is the kernel's ENOTSUPP (include/linux/errno.h), which is not of
// the C library.
const notSupported = syscall.Errno(524)

// Programs are the loaded programs that probes run, those of at least one mode.
// All are of type Kprobe. They stay the caller's, who may close them once
// everything is attached.
type Programs struct {
	// Session runs at entry and return of everything but a free; Free at a
	// free. Expected attach types BPF_TRACE_UPROBE_SESSION and
	// BPF_TRACE_UPROBE_MULTI.
	Session, Free *ebpf.Program
	// Entry and Return stand in for Session where there are no sessions; with
	// Free, of expected attach type BPF_TRACE_UPROBE_MULTI.
	Entry, Return *ebpf.Program
	// PerfEntry, PerfReturn and PerfFree are the same with no attach type.
	PerfEntry, PerfReturn, PerfFree *ebpf.Program
}

// has reports whether the programs of a mode are there.
func (p *Programs) has(m Mode) bool {
	switch m {
	case ModeSession:
		return p.Session != nil && p.Free != nil
	case ModeMulti:
		return p.Entry != nil && p.Return != nil && p.Free != nil
	case ModePerf:
		return p.PerfEntry != nil && p.PerfReturn != nil && p.PerfFree != nil
	}
	return false
}

// Attacher makes the links between a target's functions and BPF programs.
//
// Whatever moment it is interrupted at, no function is traced whose counterpart
// is not: frees come first and go last, functions that move memory stand
// between them and those that hand it out. So an allocation that was seen has its
// free seen.
//
// It is safe for concurrent use. Close removes all links.
type Attacher struct {
	pid   int
	progs Programs
	mode  Mode

	mu     sync.Mutex
	steps  [stepCount][]link.Link // in the order of attaching
	closed bool
}

// A step is a group of probes, in the order in which groups are attached.
type step int

const (
	stepFree   step = iota // frees
	stepReturn             // returns of what follows: an entry seen has its return seen
	stepResize             // reallocations, unmapping, remapping
	stepAlloc              // allocations and mappings
	stepCount
)

// NewAttacher returns an Attacher for the process pid, by the number it has in
// the PID namespace of the caller. With ModeAuto it takes the best mode of which
// the kernel is capable and the programs are there; the error is ErrNotSupported
// if there is none, or if the kernel lacks the mode that was asked for.
func NewAttacher(pid int, progs Programs, mode Mode) (*Attacher, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("attaching to process %d: %w", pid, proc.ErrNoProcess)
	}
	modes := []Mode{mode}
	if mode == ModeAuto {
		modes = []Mode{ModeSession, ModeMulti, ModePerf}
	}
	var missing []error
	for _, m := range modes {
		if !progs.has(m) {
			missing = append(missing, fmt.Errorf("programs for mode %v are not loaded: %w", m, ebpf.ErrNotSupported))
			continue
		}
		switch err := supports(m); {
		case err == nil:
			return &Attacher{pid: pid, progs: progs, mode: m}, nil
		case !errors.Is(err, ebpf.ErrNotSupported):
			return nil, err
		default:
			missing = append(missing, err)
		}
	}
	return nil, fmt.Errorf("choosing how to attach: %w", errors.Join(missing...))
}

// Mode returns the mode in use.
func (a *Attacher) Mode() Mode { return a.mode }

// Add attaches probes: all of a target's, or those of a library that it loaded
// since. They hit in all threads of the process, also future ones, and in no
// other process. Add makes all links or, with an error, none.
//
// Without sessions it leaves out functions that throw, see alloc.Function, and
// returns them.
//
// The error is proc.ErrExited if the process is gone.
func (a *Attacher) Add(probes []Probe) ([]Skip, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	probes, skips := a.safe(probes)
	var made [stepCount][]link.Link
	for s := range stepCount {
		for _, group := range a.groups(s, probes) {
			links, err := a.attach(s, group)
			made[s] = append(made[s], links...)
			if err != nil {
				return nil, errors.Join(a.explain(group, err), closeSteps(&made))
			}
		}
	}
	for s := range made {
		a.steps[s] = append(a.steps[s], made[s]...)
	}
	return skips, nil
}

// Close takes all probes out. It is idempotent.
func (a *Attacher) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return closeSteps(&a.steps)
}

// closeSteps removes links in the reverse of the order in which they are made.
// Those of one step go at the same time, since the kernel waits with each until
// no CPU runs the probe any more.
func closeSteps(steps *[stepCount][]link.Link) error {
	var errs []error
	for s := stepCount - 1; s >= 0; s-- {
		closed := make([]error, len(steps[s]))
		var wg sync.WaitGroup
		for i, l := range steps[s] {
			wg.Go(func() { closed[i] = l.Close() })
		}
		wg.Wait()
		errs = append(errs, closed...)
		steps[s] = nil
	}
	return errors.Join(errs...)
}

// safe leaves out the probes that would harm the target in this mode: only a
// session can decide at each entry that the return is not to be probed.
func (a *Attacher) safe(probes []Probe) ([]Probe, []Skip) {
	if a.mode == ModeSession {
		return probes, nil
	}
	var kept []Probe
	var skips []Skip
	for _, p := range probes {
		if !p.Function.Throws {
			kept = append(kept, p)
			continue
		}
		skips = append(skips, Skip{File: p.File.Path, Function: p.Function.Name, Cause: SkipThrows,
			Detail: "without uprobe sessions (Linux 6.13) a probe at its return would end the target when it throws bad_alloc"})
	}
	return kept, skips
}

// groups returns the probes of a step, one group a file, in the order of files.
func (a *Attacher) groups(s step, probes []Probe) [][]Probe {
	var groups [][]Probe
	index := map[*File]int{}
	for _, p := range probes {
		if !a.in(s, p.Function) {
			continue
		}
		i, ok := index[p.File]
		if !ok {
			i = len(groups)
			index[p.File] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// in reports whether a function is attached to in a step.
func (a *Attacher) in(s step, fn *alloc.Function) bool {
	switch s {
	case stepFree:
		return fn.Role == alloc.RoleFree
	case stepReturn:
		return fn.ReturnProbed() && a.mode != ModeSession
	case stepResize:
		return slices.Contains([]alloc.Role{alloc.RoleRealloc, alloc.RoleUnmap, alloc.RoleRemap}, fn.Role)
	case stepAlloc:
		return fn.Role == alloc.RoleAlloc || fn.Role == alloc.RoleMap
	}
	return false
}

// explain adds to an error of the kernel what the user can do about it.
func (a *Attacher) explain(group []Probe, err error) error {
	file := group[0].File.Path
	var hint string
	switch {
	case errors.Is(unix.Kill(a.pid, 0), unix.ESRCH):
		return fmt.Errorf("attaching to process %d: %w", a.pid, proc.ErrExited)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		hint = " (it takes CAP_BPF and CAP_PERFMON: try sudo)"
	case errors.Is(err, unix.EIO):
		hint = " (the file system cannot carry probes: no page cache, as with hugetlbfs)"
	case errors.Is(err, unix.EMFILE):
		hint = " (too many open files: raise `ulimit -n`)"
	case errors.Is(err, notSupported):
		hint = " (an instruction there cannot be probed)"
	}
	return fmt.Errorf("attaching to %q of process %d in mode %v: %w%s", file, a.pid, a.mode, err, hint)
}
