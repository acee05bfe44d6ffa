// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/ledger"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/python"
	"github.com/unfreed/unfreed/pkg/unwind"
)

// Options say how a target is traced. The zero value takes every allocation,
// with native and Python frames.
type Options struct {
	SampleBytes int64 // mean sampling interval in bytes; 0 and 1 take every allocation
	NoNative    bool  // do not unwind native frames
	NoPython    bool  // do not read Python frames
	NoReuse     bool  // unwind every stack from end to end, for comparison
	MaxLive     int   // outstanding allocations the kernel can hold; 0 is the default
	MaxSites    int   // stacks the kernel can hold; 0 is the default

	// Modes are the kinds of link to try, best first; nil tries all.
	Modes []bpfobj.Mode
	// Tables gives the unwind tables of files, such as an *unwind.Cache; nil
	// extracts them.
	Tables TableSource
	// Progress is told what is being prepared. It may be called from several
	// goroutines, and may be nil.
	Progress func(Progress)
}

// TableSource gives the unwind table of a file. It is called from several
// goroutines.
type TableSource interface {
	Table(buildID string, f *os.File) (*unwind.Table, error)
}

// Progress says how far a step of the preparation has come.
type Progress struct {
	Step        string
	Done, Total int // Total is 0 where it is not known
}

// Session is a target being traced. Its methods are safe for concurrent use
// unless they say otherwise.
type Session struct {
	o     Options
	p     *proc.Process
	space *space
	tabs  *tables
	obj   *bpfobj.Objects
	rd    *bpfobj.Reader

	table     []alloc.Function // of functions that may be probed
	functions []alloc.Function // rows as the programs know them
	first     *plan            // made while the programs are loaded
	planner   *attach.Planner
	links     *attach.Attacher
	loaderSet map[*file]bool // loaders whose list is watched
	linksMu   sync.Mutex
	watches   []link.Link
	skips     []attach.Skip

	python    *python.Runtime
	pythonOff string // why there are no Python frames

	stacks *stacks
	books  *ledger.Mappings
	sample map[sampleKey]int64

	began    time.Time // when preparation began
	start    time.Time // of tracing
	startUp  time.Duration
	startRSS int64
	cost     *costMeter

	refresh chan struct{}
	exec    chan struct{} // closed when the target has replaced its program
	stop    context.CancelFunc
	readers sync.WaitGroup
	trouble troubles
	once    sync.Once
}

type sampleKey struct {
	site     alloc.StackID
	function int
	size     uint64
}

// ErrNoFunctions means that the target has no allocation function to probe.
var ErrNoFunctions = errors.New("the process has no allocation function that can be probed")

// ErrReplaced means that the target replaced its program (exec) while it was
// being prepared for. Opening the process again and starting anew will do.
var ErrReplaced = errors.New("replaced its program while attach prepared")

// Start prepares everything and attaches to p, which stays the caller's and has
// to stay open until Close. It returns when all probes are in place. The target
// runs on meanwhile.
func Start(ctx context.Context, p *proc.Process, o Options) (_ *Session, err error) {
	s := &Session{
		o: o, p: p, began: time.Now(),
		space: newSpace(p), tabs: newTables(o.Tables), stacks: newStacks(),
		books: ledger.NewMappings(uint64(unix.Getpagesize())), sample: map[sampleKey]int64{},
		loaderSet: map[*file]bool{},
		refresh:   make(chan struct{}, 1), exec: make(chan struct{}),
	}
	if s.o.Progress == nil {
		s.o.Progress = func(Progress) {}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	program, err := p.Program()
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if s.startRSS, err = p.RSS(); err != nil {
		return nil, err
	}
	if err := s.attach(ctx); err != nil {
		return nil, err
	}
	// From here on an exec is seen; one before would have been prepared for
	// another program.
	switch now, err := p.Program(); {
	case err != nil && p.Alive():
		return nil, err
	case err == nil && now != program:
		return nil, fmt.Errorf("process %d: %w", p.PID(), ErrReplaced)
	}
	s.start = time.Now()
	s.startUp = s.start.Sub(s.began)
	// The kernel's type information and the unwind tables have passed through
	// the heap: a hundred megabytes that nothing needs any more.
	go debug.FreeOSMemory()
	return s, nil
}

// Wait blocks until ctx is done, the target exits or replaces its program, and
// says which.
func (s *Session) Wait(ctx context.Context) End {
	select {
	case <-ctx.Done():
		return End{Cause: context.Cause(ctx)}
	case <-s.exec:
		return End{Exec: true}
	case <-s.p.Done():
		status, known := s.p.ExitStatus()
		return End{Exited: true, Status: status, StatusKnown: known}
	}
}

// End says why a session came to its end.
type End struct {
	Cause       error // the context's, if that was it
	Exec        bool  // the target replaced its program
	Exited      bool  // the target is gone
	Status      unix.WaitStatus
	StatusKnown bool
}

// String says it in a clause.
func (e End) String() string {
	switch {
	case e.Exec:
		return "target replaced its program (exec)"
	case e.Exited && !e.StatusKnown:
		return "target exited"
	case e.Exited && e.Status.Signaled():
		return fmt.Sprintf("target was killed by signal %d (%s)", e.Status.Signal(), unix.SignalName(e.Status.Signal()))
	case e.Exited:
		return fmt.Sprintf("target exited with status %d", e.Status.ExitStatus())
	case errors.Is(e.Cause, context.DeadlineExceeded):
		return "duration reached"
	}
	return "interrupted"
}

// Close takes the probes out, allocations first, and frees everything but the
// process. It is idempotent.
func (s *Session) Close() error {
	var errs []error
	s.once.Do(func() {
		if s.links != nil {
			errs = append(errs, s.links.Close())
		}
		errs = append(errs, s.closeWatches())
		if s.stop != nil {
			s.stop()
		}
		if s.rd != nil {
			errs = append(errs, s.rd.Close())
		}
		s.readers.Wait()
		if s.planner != nil {
			errs = append(errs, s.planner.Close())
		}
		if s.cost != nil {
			errs = append(errs, s.cost.close())
		}
		if s.obj != nil {
			errs = append(errs, s.obj.Close())
		}
		errs = append(errs, s.space.close())
	})
	return errors.Join(errs...)
}

// monotonic is the programs' clock.
func monotonic() uint64 {
	var ts unix.Timespec
	// It cannot fail with a valid clock and pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}
