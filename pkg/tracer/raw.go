// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/unwind"
)

// maxRaw bounds the copied stacks that are kept, 16 KiB each. A library is known
// after some milliseconds, in which no program makes that many different ones.
const maxRaw = 4096

// Statuses of bpf/lib/wire.h.
const (
	unwindDone      = 1
	unwindNoMapping = 2
	unwindNoRow     = 3
)

// keepRaw stores the memory of a stack through code that is not known yet.
func (s *Session) keepRaw(r *bpfobj.Raw) {
	if len(s.stacks.raw) >= maxRaw {
		s.noMoreRaw()
		return
	}
	s.stacks.raw[r.Site] = r
}

// noMoreRaw ends the copying of stacks, for a program that generates code or
// makes too many of them.
func (s *Session) noMoreRaw() {
	if err := s.obj.KeepRaw(false); err != nil {
		s.trouble.add("raw_stacks", err.Error())
	}
}

// unwindRaw goes on with the stacks that ended in a library just loaded, now
// that it is known, and returns how many allocations that completed: they were
// counted as partial.
func (s *Session) unwindRaw() (completed int64) {
	if len(s.stacks.raw) == 0 {
		return 0
	}
	v := s.space.now()
	tables := map[*file]*unwind.Table{}
	table := func(f *file) *unwind.Table {
		t, ok := tables[f]
		if !ok {
			t, _ = s.tabs.extractOne(f) // without one the stack stays as it is
			tables[f] = t
		}
		return t
	}
	done := map[alloc.StackID]bool{}
	for id, raw := range s.stacks.raw {
		r := s.stacks.byID[id]
		if r == nil || r.status != unwindNoMapping {
			continue
		}
		rest, ok := unwindCopy(raw, v, table)
		for _, pc := range rest {
			p := place{addr: pc}
			if g, ok := v.find(pc); ok {
				p.mapping = g.mapping
			}
			r.native = append(r.native, p)
		}
		if ok {
			r.status = unwindDone
			done[id] = true
		}
	}
	if sites, err := s.obj.Sites(); err == nil {
		for _, c := range sites {
			if done[c.Site] {
				completed += int64(c.AllocObjects)
			}
		}
	}
	return completed
}

// maxRawFrames is that of a stack, MAX_NATIVE of bpf/lib/wire.h.
const maxRawFrames = 256

// unwindCopy unwinds a copied stack from its last known frame, which it leaves
// out, and reports whether it reached the thread's start. Addresses are in the
// call instruction, as those of a place.
func unwindCopy(raw *bpfobj.Raw, v *view, table func(*file) *unwind.Table) (pcs []uint64, complete bool) {
	read := func(addr uint64) (uint64, bool) {
		off := addr - raw.SP
		if addr < raw.SP || off > uint64(len(raw.Data)) || uint64(len(raw.Data))-off < 8 {
			return 0, false
		}
		return binary.NativeEndian.Uint64(raw.Data[off:]), true
	}
	regs := unwind.Registers{PC: raw.IP, SP: raw.SP, FP: raw.BP}
	leaf := false
	for range maxRawFrames {
		pc := regs.PC
		if !leaf {
			pc--
		}
		g, ok := v.find(pc)
		if !ok {
			return pcs, false
		}
		t := table(g.file)
		if t == nil {
			return pcs, false
		}
		info, delta, ok := t.Lookup(pc - g.bias)
		if !ok {
			return pcs, false
		}
		var res unwind.Result
		switch res, leaf = unwind.Step(info, delta, &regs, read); res {
		case unwind.Caller:
		case unwind.Done:
			return pcs, true
		default:
			return pcs, false
		}
		if pc = regs.PC; !leaf {
			pc--
		}
		pcs = append(pcs, pc)
	}
	return pcs, false
}
