// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/ledger"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/python"
	"github.com/unfreed/unfreed/pkg/unwind"
)

// Finish ends the tracing and turns what the kernel holds into a Snapshot: the
// counting stops first and at once, then the readers end and the probes are
// taken out, then the maps are read. It works also when the target is gone. Call it once.
func (s *Session) Finish(end End, minAge time.Duration) (*alloc.Snapshot, error) {
	now := monotonic()
	if err := s.obj.Stop(); err != nil {
		return nil, err
	}
	duration := time.Since(s.start)
	rss, rssErr := s.p.RSS()
	s.stop() // the reader takes what is left in the ring
	s.readers.Wait()
	err := errors.Join(s.links.Close(), s.closeWatches())
	if err != nil {
		return nil, fmt.Errorf("taking the probes out: %w", err)
	}
	s.reconcile(end, now)
	s.bindLate()
	completed := s.unwindRaw()

	counters, err := s.obj.Counters()
	if err != nil {
		return nil, err
	}
	obs, discrepancies, err := s.observe(now, minAge)
	if err != nil {
		return nil, err
	}
	snap := &alloc.Snapshot{
		Target: alloc.Target{
			PID: s.p.PID(), Command: s.p.Command(), Exe: s.p.Exe(), PythonOff: s.pythonOff,
		},
		Start: s.start, Duration: duration, Ended: end.String(),
		SampleBytes: max(s.o.SampleBytes, 1), MinAge: minAge,
		Sites:  obs.Sites(),
		Before: alloc.Before{RSS: s.startRSS, RSSAtEnd: rss, FreesUnmatched: counters.FreesUnmatched, FreedBytes: counters.UnmatchedBytes},
	}
	if rssErr != nil || end.Exec {
		snap.Before.RSSAtEnd = 0 // gone, or another program's
	}
	if s.python != nil {
		snap.Target.Python = s.python.Version.String()
	}
	complete(counters, completed)
	snap.Coverage = s.coverage(counters, discrepancies)
	s.fillStacks(snap)
	if note := growthNote(snap); note != "" {
		snap.Coverage.Notes = append(snap.Coverage.Notes, note)
	}
	programs, traps := s.cost.total(counters.Hits)
	own, _ := ownRSS()
	kernel, _ := s.obj.Memory()
	snap.Cost = alloc.Cost{
		Hits: counters.Hits, ProgramTime: programs, TrapTime: traps,
		OwnRSS: own, KernelMapBytes: kernel, StartUp: s.startUp,
	}
	return snap, nil
}

// reconcile frees mappings that are gone without a call that a probe could see.
func (s *Session) reconcile(end End, now uint64) {
	if end.Exited || end.Exec {
		return // the books close with the last state
	}
	maps, err := s.p.Maps()
	if err != nil || len(maps) == 0 {
		return
	}
	ranges := make([]ledger.Range, 0, len(maps))
	for _, m := range maps {
		ranges = append(ranges, ledger.Range{Start: m.Start, End: m.End})
	}
	s.books.Reconcile(ranges, now)
}

// bindLate looks once more for the files of addresses that were in none when
// their stack came: libraries of which the mappings were read later.
func (s *Session) bindLate() {
	if fresh, err := s.space.scan(); err == nil && len(fresh.regions) > 0 {
		s.space.use(fresh, s.space.now().generation)
	}
	v := s.space.now()
	for _, r := range s.stacks.byID {
		for i := range r.native {
			if p := &r.native[i]; p.mapping == nil {
				if g, ok := v.find(p.addr); ok {
					p.mapping = g.mapping
				}
			}
		}
	}
}

// observe reads the kernel's books and joins them with those of mappings.
func (s *Session) observe(now uint64, minAge time.Duration) (*ledger.Observation, []ledger.Discrepancy, error) {
	live, err := s.obj.Live()
	if err != nil {
		return nil, nil, err
	}
	sites, err := s.obj.Sites()
	if err != nil {
		return nil, nil, err
	}
	o := &ledger.Observation{
		Functions: s.functions, SampleBytes: s.o.SampleBytes, Now: now, MinAge: minAge,
		Live: s.books.Live(), Counters: s.books.Counters(),
	}
	var heap []ledger.Live
	function := map[alloc.StackID]int{}
	for _, l := range live {
		function[l.Site] = l.Function
		heap = append(heap, ledger.Live{
			Addr: l.Address, Size: l.Size, Stack: l.Site, Function: uint16(l.Function),
			TID: uint32(l.TID), Time: l.Time,
		})
	}
	var counters []ledger.Counter
	for _, c := range sites {
		if c.AllocObjects == 0 && c.FreeObjects == 0 {
			continue // a mapping's, whose books are elsewhere
		}
		row, ok := function[c.Site]
		if r := s.stacks.byID[c.Site]; r != nil {
			row = r.function
		} else if !ok {
			s.trouble.add("stacks_lost", "a stack was never received; its allocations have no frames")
		}
		counters = append(counters, ledger.Counter{
			Stack: c.Site, Function: uint16(row),
			AllocObjects: c.AllocObjects, AllocBytes: c.AllocBytes,
			FreeObjects: c.FreeObjects, FreeBytes: c.FreeBytes,
		})
	}
	discrepancies := ledger.Check(heap, counters)
	o.Live = append(o.Live, heap...)
	o.Counters = append(o.Counters, counters...)
	for k, n := range s.sample {
		if n > 0 {
			o.Samples = append(o.Samples, ledger.Sample{
				Stack: k.site, Function: uint16(k.function), Size: k.size, Count: uint64(n),
			})
		}
	}
	return o, discrepancies, nil
}

// fillStacks gives the sites their frames.
func (s *Session) fillStacks(snap *alloc.Snapshot) {
	frames := s.symbolizeAll(snap.Sites)
	mismatch := map[python.Mismatch]int64{}
	for i := range snap.Sites {
		site := &snap.Sites[i]
		r := s.stacks.byID[site.ID]
		if r == nil {
			continue
		}
		merged := s.merge(r, frames)
		site.Stack = merged.Frames
		if merged.Mismatch != python.Matched && r.status == unwindDone {
			mismatch[merged.Mismatch]++
		}
		for _, f := range merged.Frames {
			snap.Coverage.Frames++
			if f.Function == "" {
				snap.Coverage.Unsymbolized++
			}
		}
	}
	for m, n := range mismatch {
		snap.Coverage.PythonMissing = append(snap.Coverage.PythonMissing, alloc.Cause{
			Name: string(m), Detail: "stacks whose native and Python frames do not fit each other", Count: n,
		})
	}
	slices.SortFunc(snap.Coverage.PythonMissing, func(a, b alloc.Cause) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *Session) merge(r *recorded, frames map[place][]alloc.Frame) python.Merged {
	native := make([]python.NativeFrame, len(r.native))
	for i, p := range r.native {
		native[i].Frames = frames[p]
		if s.python != nil {
			native[i].Eval = s.python.IsEval(p.addr)
			name := native[i].Frames[len(native[i].Frames)-1].Function
			native[i].Interpreter = s.python.IsInterpreter(p.addr, name)
		}
	}
	if s.python == nil {
		return python.Merge(&python.Layout{}, native, nil, python.MergeOptions{KeepInterpreter: true})
	}
	py := make([]python.Frame, len(r.python))
	for i, f := range r.python {
		py[i] = python.Frame{Address: f.Code, Entry: f.Entry, Code: s.stacks.codes[f.Code]}
		py[i].Offset = int64(f.Position)
		if s.python.Layout.InstrIsIndex {
			py[i].Offset = s.python.Layout.Offset(0, uint64(uint32(f.Position)))
		}
	}
	return python.Merge(&s.python.Layout, native, py, python.MergeOptions{KeepInterpreter: true})
}

// ownRSS is this process's resident set.
func ownRSS() (int64, error) {
	p, err := proc.Open(os.Getpid())
	if err != nil {
		return 0, err
	}
	defer p.Close()
	return p.RSS()
}

// skipNotes tells what of the target is not probed and could matter.
func skipNotes(skips []attach.Skip) []string {
	var notes []string
	for _, s := range skips {
		if s.Cause.Missed() {
			notes = append(notes, "not probed: "+s.String())
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// tableNotes tells which files ended stacks for want of an unwind table. Most
// files without one hold no code that allocates, and are not worth a word.
func (s *Session) tableNotes() []string {
	failed := s.tabs.failures()
	seen := map[string]bool{}
	var notes []string
	for _, r := range s.stacks.byID {
		if len(r.native) == 0 || r.status != unwindNoRow {
			continue
		}
		m := r.native[len(r.native)-1].mapping
		if m == nil || seen[m.File] {
			continue
		}
		seen[m.File] = true
		switch err := failed[m.File]; {
		case err == nil:
		case errors.Is(err, unwind.ErrNoRows):
			notes = append(notes, fmt.Sprintf("stacks end in %s, which has no unwind information", m.File))
		default:
			notes = append(notes, fmt.Sprintf("stacks end in %s: %s", m.File, firstLine(err)))
		}
	}
	slices.Sort(notes)
	return notes
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
