// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/python"
)

// prepare learns of the target all that the programs need and loads them. No
// probe is set yet, so it costs the target nothing.
func (s *Session) prepare(ctx context.Context) error {
	s.o.Progress(Progress{Step: "reading mappings"})
	v, err := s.space.scan()
	if err != nil {
		return err
	}
	if len(v.regions) == 0 {
		return ErrNoFunctions
	}
	s.findPython(v)
	if !s.o.NoNative {
		s.tabs.extract(s.tabs.missing(v), func(done, total int) {
			s.o.Progress(Progress{Step: "preparing unwind tables", Done: done, Total: total})
		})
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.o.Progress(Progress{Step: "loading programs"})
	s.table = alloc.HostFunctions()
	s.planner = attach.NewPlanner(s.space.files.openAgain, s.table)
	var first plan
	var g errgroup.Group
	g.Go(s.load)
	g.Go(func() (err error) {
		first, err = s.plan(v)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	s.first = &first
	return s.show(v)
}

// plan is where probes go in a view.
type plan struct {
	probes []attach.Probe
	skips  []attach.Skip
}

// plan looks for the functions of a view that have no probe yet.
func (s *Session) plan(v *view) (plan, error) {
	probes, skips, err := s.planner.Plan(v.all)
	if err != nil {
		return plan{}, fmt.Errorf("looking for allocation functions: %w", err)
	}
	for i := range probes {
		if probes[i].File.GLIBC {
			probes[i].Cookie = uint64(probes[i].Row + len(s.table))
		}
	}
	return plan{probes, skips}, nil
}

// findPython learns where the interpreter's frames are. Without one, or with an
// unknown one, stacks are native, and the reason is kept for the report.
func (s *Session) findPython(v *view) {
	if s.o.NoPython {
		s.pythonOff = "not asked for"
		return
	}
	r, err := python.Find(s.p, v.all, s.space.files.elfOf)
	switch {
	case err == nil:
		s.python = r
	case errors.Is(err, python.ErrNoPython):
	default:
		s.pythonOff = err.Error()
	}
}

// load loads the programs for the best kind of link that the kernel has.
func (s *Session) load() error {
	modes := s.o.Modes
	if modes == nil {
		best, err := attach.Supported()
		if err != nil {
			return err
		}
		modes = []bpfobj.Mode{modeOf(best)}
	}
	dev, ino, err := s.p.PIDNamespace()
	if err != nil {
		return err
	}
	pids, err := s.p.NSPIDs()
	if err != nil {
		return err
	}
	o := bpfobj.Options{
		SampleBytes: s.o.SampleBytes, Native: !s.o.NoNative, NoReuse: s.o.NoReuse,
		MaxLive: s.o.MaxLive, MaxSites: s.o.MaxSites,
		PIDNSDev: dev, PIDNSIno: ino, PIDNSTgid: pids[len(pids)-1],
		Python: s.pythonLayout(),
	}
	limits, err := proc.ReadMemoryLimits()
	if err != nil {
		return fmt.Errorf("reading the host's memory limits: %w", err)
	}
	o.RefusedBytes, o.MaxMappings = limits.Refused, limits.Mappings
	o.Pages, o.Rows, o.Infos = s.tabs.room()
	for _, o.Mode = range modes {
		if s.obj, err = bpfobj.Load(o); !errors.Is(err, ebpf.ErrNotSupported) {
			break
		}
	}
	return err
}

func modeOf(m attach.Mode) bpfobj.Mode {
	switch m {
	case attach.ModeSession:
		return bpfobj.ModeSession
	case attach.ModeMulti:
		return bpfobj.ModeMulti
	}
	return bpfobj.ModePerf
}

func (s *Session) pythonLayout() *bpfobj.PythonLayout {
	if s.python == nil {
		return nil
	}
	l := &s.python.Layout
	return &bpfobj.PythonLayout{
		Interpreters: s.python.RuntimeAddr + uint64(l.InterpretersHead), CodeMask: l.CodeMask,
		InterpNext: l.InterpNext, InterpThreads: l.InterpThreadsHead,
		ThreadNext: l.ThreadNext, ThreadPrev: l.ThreadPrev, ThreadInterp: l.ThreadInterp,
		ThreadID: l.ThreadID, ThreadUniqueID: l.ThreadUniqueID, ThreadFrame: l.ThreadFrame,
		FrameIndirect: l.FrameIndirect, FrameSize: l.FrameSize,
		FrameCode: l.FrameCode, FramePrev: l.FramePrev, FrameInstr: l.FrameInstr,
		FrameOwner: l.FrameOwner, EntryValue: l.EntryValue,
		EntryIsShim: l.EntryIsShim, InstrIsIndex: l.InstrIsIndex,
		CodeIdent: l.CodeIdent, CodeFirstLine: l.CodeFirstLine, CodeAdaptive: l.CodeAdaptive,
		CodeFirstTraceable: l.CodeFirstTraceable,
		CodeFilename:       l.CodeFilename, CodeName: l.CodeQualname, CodeLineTable: l.CodeLineTable,
		UnicodeHeader: l.LegacyData + 8, UnicodeMinHeader: l.AsciiData, UnicodeLength: l.UnicodeLength,
		BytesHeader: l.BytesData, BytesLength: l.BytesSize,
	}
}

// show gives the programs the tables and the mappings of a view.
func (s *Session) show(v *view) error {
	if err := s.tabs.place(s.obj); err != nil {
		return err
	}
	_, meaning := v.changed(s.space.now())
	gen, err := s.obj.SetMappings(s.tabs.mappings(v), meaning)
	if err != nil {
		return err
	}
	s.space.use(v, gen)
	return nil
}

// attach starts the readers and puts the probes in place.
func (s *Session) attach(ctx context.Context) error {
	s.o.Progress(Progress{Step: "placing probes"})
	if err := s.setFunctions(s.table); err != nil {
		return err
	}
	var err error
	if s.rd, err = s.obj.NewReader(); err != nil {
		return err
	}
	s.cost = newCostMeter(s.obj)
	if s.links, err = s.newAttacher(); err != nil {
		return err
	}
	if err := s.watchProcess(); err != nil {
		return err
	}
	n, err := s.probe(s.space.now(), *s.first)
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrNoFunctions
	}
	var run context.Context
	run, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.readers.Go(func() { s.read(run) })
	s.readers.Go(func() { s.follow(run) })
	// Whatever was loaded while the tables were made is found at once.
	s.lookAgain()
	return nil
}

// setFunctions writes the table twice: the upper half is for glibc's own
// functions, before whose memory lies the chunk header that tells its size.
func (s *Session) setFunctions(table []alloc.Function) error {
	s.functions = append(append([]alloc.Function(nil), table...), table...)
	if len(s.functions) > bpfobj.MaxFunctions {
		return fmt.Errorf("writing %d functions: %w", len(s.functions), bpfobj.ErrFull)
	}
	for row, f := range s.functions {
		if err := s.obj.SetFunction(row, f, row >= len(table)); err != nil {
			return err
		}
	}
	return nil
}

// probe sets the probes of a plan, and returns how many.
func (s *Session) probe(v *view, p plan) (int, error) {
	skips, err := s.links.Add(p.probes)
	if err != nil {
		return 0, err
	}
	s.skips = append(append(s.skips, p.skips...), skips...)
	s.watchLoaders(v)
	return len(p.probes), nil
}

// isLoader reports whether a file is a dynamic loader, by the names that
// glibc and musl give it.
func isLoader(name string) bool {
	base := path.Base(name)
	for _, pattern := range []string{"ld-linux*.so.*", "ld-2.*.so", "ld.so*", "ld-musl-*.so.*", "ld64.so.*"} {
		if ok, _ := path.Match(pattern, base); ok {
			return true
		}
	}
	return false
}
