// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"

	pprof "github.com/google/pprof/profile"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// builder collects the tables of a profile. Entries are numbered in the order
// of their first use, which is deterministic as sites come sorted.
type builder struct {
	p         *pprof.Profile
	exe       string
	byMapping map[alloc.Mapping]*pprof.Mapping
	functions map[functionKey]*pprof.Function
	locations map[locationKey]*pprof.Location
}

type functionKey struct {
	name, systemName, file string
	startLine              int64
}

type locationKey struct {
	mapping, address uint64
	lines            string // function and line of each, packed
}

func newBuilder(exe string) *builder {
	return &builder{
		p:         new(pprof.Profile),
		exe:       exe,
		byMapping: make(map[alloc.Mapping]*pprof.Mapping),
		functions: make(map[functionKey]*pprof.Function),
		locations: make(map[locationKey]*pprof.Location),
	}
}

// mappings enters the mappings that the sites refer to. By convention the first
// one is the main binary, whose name is the profile's title in pprof, so the
// executable is first and there even if no stack goes through it.
func (b *builder) mappings(sites []alloc.Site) {
	used := make(map[alloc.Mapping]bool)
	for i := range sites {
		for j := range sites[i].Stack {
			if m := sites[i].Stack[j].Mapping; m != nil {
				used[*m] = true
			}
		}
	}
	list := make([]alloc.Mapping, 0, len(used))
	main := false
	for m := range used {
		list = append(list, m)
		main = main || m.File == b.exe
	}
	if !main && b.exe != "" {
		list = append(list, alloc.Mapping{File: b.exe})
	}
	slices.SortFunc(list, func(x, y alloc.Mapping) int {
		return cmp.Or(
			cmp.Compare(b.rank(&x), b.rank(&y)),
			cmp.Compare(x.Start, y.Start),
			cmp.Compare(x.End, y.End),
			cmp.Compare(x.Offset, y.Offset),
			cmp.Compare(x.File, y.File),
			cmp.Compare(x.BuildID, y.BuildID),
		)
	})
	for i, m := range list {
		pm := &pprof.Mapping{
			ID:           uint64(i + 1),
			Start:        m.Start,
			Limit:        m.End,
			Offset:       m.Offset,
			File:         text(m.File),
			BuildID:      text(m.BuildID),
			HasFunctions: true, // see the package comment
		}
		b.byMapping[m] = pm
		b.p.Mapping = append(b.p.Mapping, pm)
	}
}

// rank sorts the executable first.
func (b *builder) rank(m *alloc.Mapping) int {
	if m.File == b.exe {
		return 0
	}
	return 1
}

// sample enters a site.
func (b *builder) sample(s *alloc.Site) {
	if s.AllocObjects == 0 && s.AllocBytes == 0 && s.InUseObjects == 0 && s.InUseBytes == 0 {
		return
	}
	b.p.Sample = append(b.p.Sample, &pprof.Sample{
		Location: b.stack(s),
		Value:    []int64{s.AllocObjects, s.AllocBytes, s.InUseObjects, s.InUseBytes},
		Label:    map[string][]string{"memory": {s.Kind.String()}},
	})
}

// stack returns the locations of a site, the allocation function first.
func (b *builder) stack(s *alloc.Site) []*pprof.Location {
	name := cmp.Or(s.Function, "["+s.Kind.String()+"]")
	locs := []*pprof.Location{b.location(nil, 0, []alloc.Frame{{Function: name}})}
	for rest := s.Stack; len(rest) > 0; {
		n := physical(rest)
		f := &rest[n-1]
		var m *pprof.Mapping
		if f.Mapping != nil {
			m = b.byMapping[*f.Mapping]
		}
		locs = append(locs, b.location(m, f.Address, rest[:n]))
		rest = rest[n:]
	}
	return locs
}

// physical returns how many frames at the head of a stack are one physical
// frame: a function and what was inlined into it. Frames whose outer function
// is not there, since a view dropped it, end where the address does.
func physical(stack []alloc.Frame) int {
	n := 1
	for n < len(stack) && stack[n-1].Inlined &&
		stack[n].Language == stack[0].Language && stack[n].Address == stack[0].Address {
		n++
	}
	return n
}

// location returns the location of one physical frame.
func (b *builder) location(m *pprof.Mapping, address uint64, frames []alloc.Frame) *pprof.Location {
	k := locationKey{address: address}
	if m != nil {
		k.mapping = m.ID
	}
	lines := make([]pprof.Line, len(frames))
	packed := make([]byte, 0, 16*len(frames))
	for i := range frames {
		f := &frames[i]
		lines[i] = pprof.Line{Function: b.function(f), Line: int64(f.Line)}
		packed = binary.LittleEndian.AppendUint64(packed, lines[i].Function.ID)
		packed = binary.LittleEndian.AppendUint64(packed, uint64(f.Line))
		if m != nil {
			m.HasFilenames = m.HasFilenames || f.File != ""
			m.HasLineNumbers = m.HasLineNumbers || f.Line != 0
			m.HasInlineFrames = m.HasInlineFrames || len(frames) > 1
		}
	}
	k.lines = string(packed)
	if l, ok := b.locations[k]; ok {
		return l
	}
	l := &pprof.Location{ID: uint64(len(b.p.Location) + 1), Mapping: m, Address: address, Line: lines}
	b.locations[k] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

// function returns the function of one frame.
func (b *builder) function(f *alloc.Frame) *pprof.Function {
	k := functionKey{text(f.Label()), text(f.SystemName), text(f.File), int64(f.StartLine)}
	if f.Language == alloc.Python {
		k.systemName = ""
	}
	if fn, ok := b.functions[k]; ok {
		return fn
	}
	fn := &pprof.Function{
		ID:         uint64(len(b.p.Function) + 1),
		Name:       k.name,
		SystemName: k.systemName,
		Filename:   k.file,
		StartLine:  k.startLine,
	}
	b.functions[k] = fn
	b.p.Function = append(b.p.Function, fn)
	return fn
}

// text makes a string fit for a protobuf: symbols and paths are bytes, and one
// that is not UTF-8 would make strict readers refuse the whole profile.
func text(s string) string { return strings.ToValidUTF8(s, string(unicode.ReplacementChar)) }
