// SPDX-License-Identifier: Apache-2.0

package kfeature

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Feature is something that not every kernel has.
type Feature int

// The features.
const (
	BTF             Feature = iota // Linux 5.4, with CONFIG_DEBUG_INFO_BTF
	RingBuffer                     // Linux 5.8
	TaskStorage                    // Linux 5.11
	Loop                           // Linux 5.17
	UprobeCookie                   // Linux 5.15
	UprobeCounter                  // Linux 4.20
	SleepableUprobe                // Linux 6.0
	UprobeMulti                    // Linux 6.6, with a filter by process 6.10
	UprobeSession                  // Linux 6.13
	SessionKfuncs                  // Linux 6.13 for uprobes
	ExecTracepoint
	ExitTracepoint
	featureCount
)

// features says what each is for and how to find out whether it is there.
var features = [featureCount]struct {
	name, doc string
	probe     func() error
}{
	BTF: {"kernel type information",
		"Programs find the fields of the kernel's structures by it (CONFIG_DEBUG_INFO_BTF).", probeBTF},
	RingBuffer: {"ring buffer",
		"New stacks and changes of the process reach user space by it.", probeMap(ebpf.RingBuf)},
	TaskStorage: {"task storage",
		"Keeps what is known of each thread, such as its last stack.", probeMap(ebpf.TaskStorage)},
	Loop: {"helper bpf_loop",
		"Walks stacks of hundreds of frames within what the verifier accepts.", probeLoop},
	UprobeCookie: {"uprobe links with cookie",
		"Tell one program which function was called; used where there are no multi-uprobe links.", probeUprobeCookie},
	UprobeCounter: {"uprobe reference counters",
		"Switch on the static probes of libraries such as PyTorch.", probeUprobeCounter},
	SleepableUprobe: {"sleepable uprobe programs",
		"Read stack pages that are swapped out; without them such stacks are cut.", probeSleepable},
	UprobeMulti: {"multi-uprobe links",
		"Attach to all functions of a library at once, for one process; without them each function takes a perf event.", probeUprobeMulti},
	UprobeSession: {"uprobe session links",
		"Run one program at entry and return, at the least cost a call.", probeUprobeSession},
	SessionKfuncs: {"session functions",
		"Let a session's program tell entry from return and carry the size across.", probeSessionKfuncs},
	ExecTracepoint: {"tracepoint sched_process_exec",
		"Tells when the process becomes another program.", probeTracepoint("sched_process_exec")},
	ExitTracepoint: {"tracepoint sched_process_exit",
		"Tells when threads and the process end.", probeTracepoint("sched_process_exit")},
}

// String returns the feature's name for people.
func (f Feature) String() string {
	if !f.valid() {
		return fmt.Sprintf("feature(%d)", int(f))
	}
	return features[f].name
}

// Doc says in a sentence what the feature is for here.
func (f Feature) Doc() string {
	if !f.valid() {
		return ""
	}
	return features[f].doc
}

func (f Feature) valid() bool { return f >= 0 && f < featureCount }

// All returns every feature, in the order of the constants.
func All() []Feature {
	all := make([]Feature, featureCount)
	for i := range all {
		all[i] = Feature(i)
	}
	return all
}

// ErrNotSupported means that the kernel does not have a feature. It is the
// library's, so that errors of both are asked alike.
var ErrNotSupported = ebpf.ErrNotSupported

// UnsupportedError says that the kernel does not have a feature, and how that
// showed. It is ErrNotSupported.
type UnsupportedError struct {
	Feature Feature
	Err     error
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: not supported by this kernel: %v", e.Feature, e.Err)
}

// Is makes the error ErrNotSupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrNotSupported }

// Unwrap returns what the kernel said.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// answers keeps what was found out: it holds for as long as the kernel runs.
var answers [featureCount]struct {
	mu   sync.Mutex
	done bool
	err  error
}

// Have returns nil if the kernel has a feature, an *UnsupportedError if it has
// not, and another error if that could not be found out, mostly for lack of
// privileges. The first two answers are kept, also when privileges change later;
// without one it is tried again. Asking for UprobeCookie, UprobeCounter or
// SleepableUprobe takes some 100 ms, as the kernel waits for all processors when
// a probe goes. Safe for concurrent use.
func Have(f Feature) error {
	if !f.valid() {
		return fmt.Errorf("probing for %s: no such feature", f)
	}
	a := &answers[f]
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return a.err
	}
	err := features[f].probe()
	switch {
	case err == nil:
		a.done = true
	case errors.Is(err, ErrNotSupported):
		a.done, a.err = true, &UnsupportedError{f, err}
		return a.err
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("probing for %s: %w (it takes CAP_BPF and CAP_PERFMON: try sudo)", f, err)
	default:
		return fmt.Errorf("probing for %s: %w", f, err)
	}
	return nil
}

// lacking is the reason of an UnsupportedError, as a probe returns it.
type lacking struct{ error }

func (lacking) Is(target error) bool { return target == ErrNotSupported }
func (l lacking) Unwrap() error      { return l.error }

// refused types what the kernel says of what it does not know: EINVAL for a
// value, E2BIG for a field of a request. Nothing else means that a feature is
// missing.
func refused(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.E2BIG) {
		return lacking{err}
	}
	return err
}
