// SPDX-License-Identifier: Apache-2.0

package python

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

const (
	// maxEvalCode bounds the code of one part of the eval function. Known
	// builds have 29 to 84 KB in the largest part; a debug build of 3.14 has
	// 200 KB.
	maxEvalCode = 1 << 20

	// maxEvalParts bounds into how many parts it may have been cut. GCC makes
	// one or two, BOLT a few.
	maxEvalParts = 32
)

// evalPartNames are the names that compilers and BOLT give to parts which they
// split from the eval function, where there is a .symtab to tell.
var evalPartNames = []string{
	symEval + ".cold", symEval + ".cold.0", symEval + ".cold.1", symEval + ".cold.2",
	symEval + ".part.0", symEval + ".part.0.cold",
	symEval + ".constprop.0", symEval + ".constprop.0.cold",
}

// evalRanges finds all code of the eval function, the one whose native frames
// own Python frames: the function itself, and the parts that the compiler moved
// away from it (rarely used code, mostly, and in some builds nearly all of it),
// for which stripped files have no name. A part is found through the direct
// jumps into it.
//
// In builds with a tail-calling interpreter (3.14 on, by Clang) the opcodes are
// functions of their own that jump to one another. _PyEval_EvalFrameDefault
// calls the first and, since its own frame holds the entry frame, stays on the
// stack until the last returns. So there too it is the one that counts, and the
// opcode functions are merely code of the interpreter.
func (img *image) evalRanges() ([]Range, error) {
	start, err := img.evalFunction(img.symbols[symEval])
	if err != nil {
		return nil, err
	}
	parts := &evalParts{img: img, ranges: []Range{start}}
	named, err := img.Lookup(evalPartNames...)
	if err != nil {
		return nil, fmt.Errorf("looking for parts of %s: %w", symEval, err)
	}
	for _, name := range evalPartNames {
		if s, ok := named[name]; ok && s.Type == elf.STT_FUNC {
			if r, err := img.evalFunction(s); err == nil {
				parts.add(r)
			}
		}
	}
	parts.follow()
	ranges := slices.Clone(parts.ranges)
	for i := range ranges {
		ranges[i].Start += img.bias
		ranges[i].End += img.bias
	}
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	return ranges, nil
}

// evalFunction returns the virtual addresses of a function.
func (img *image) evalFunction(s elfsym.Symbol) (Range, error) {
	size := s.Size
	if size == 0 {
		_, end, ok := img.FunctionRange(s.Value)
		if !ok {
			return Range{}, fmt.Errorf("the size of its function %s cannot be told", s.Name)
		}
		size = end - s.Value
	}
	if size > maxEvalCode || s.Value+size < s.Value {
		return Range{}, fmt.Errorf("its function %s is %d bytes long, more than can be", s.Name, size)
	}
	return Range{s.Value, s.Value + size}, nil
}

// evalParts grows from the known parts of the eval function to all of them.
type evalParts struct {
	img    *image
	ranges []Range // in order of discovery, not overlapping
}

// find returns the index of the part that contains a, or -1.
func (p *evalParts) find(a uint64) int {
	return slices.IndexFunc(p.ranges, func(r Range) bool { return r.Contains(a) })
}

func (p *evalParts) add(r Range) {
	overlaps := func(o Range) bool { return r.Start < o.End && o.Start < r.End }
	if len(p.ranges) < maxEvalParts && r.Start < r.End && !slices.ContainsFunc(p.ranges, overlaps) {
		p.ranges = append(p.ranges, r)
	}
}

// entry is how code outside the known parts is reached from within.
type entry struct {
	jumps       int
	interior    bool // a jump leads past its first instruction
	conditional bool // a conditional jump leads to it
}

// follow adds the functions (by their descriptors in .eh_frame) into which
// jumps of known parts lead, if they are parts.
func (p *evalParts) follow() {
	for i := 0; i < len(p.ranges); i++ { // grows
		found := make(map[Range]*entry)
		for _, j := range p.jumps(p.ranges[i]) {
			if p.find(j.target) >= 0 {
				continue
			}
			start, end, ok := p.img.FunctionRange(j.target)
			if !ok || end <= start || end-start > maxEvalCode {
				continue
			}
			e := found[Range{start, end}]
			if e == nil {
				e = new(entry)
				found[Range{start, end}] = e
			}
			e.jumps++
			e.interior = e.interior || j.target != start
			e.conditional = e.conditional || j.conditional
		}
		for _, r := range sortedRanges(found) {
			if p.isPart(r, found[r]) {
				p.add(r)
			}
		}
	}
}

// isPart tells a part from another function that is reached by a tail call. A
// tail call goes to a function's start, by an unconditional jump, and does not
// come back; and other functions may have a name. One jump to the middle of
// something is not enough, since it may be a phantom.
func (p *evalParts) isPart(r Range, e *entry) bool {
	if p.hasName(r.Start) {
		return false
	}
	for _, j := range p.jumps(r) {
		if i := p.find(j.target); i >= 0 && j.target != p.ranges[i].Start {
			return true
		}
	}
	return e.conditional && (!e.interior || e.jumps > 1)
}

func (p *evalParts) jumps(r Range) []jump {
	code := make([]byte, r.End-r.Start)
	n, _ := p.img.ReadVaddr(code, r.Start)
	return directJumps(p.img.Machine(), code[:n], r.Start)
}

// hasName reports whether an exported function starts at v.
func (p *evalParts) hasName(v uint64) bool {
	syms, err := p.img.DynSymbols()
	if err != nil {
		return false
	}
	i := sort.Search(len(syms), func(i int) bool { return syms[i].Value >= v })
	return i < len(syms) && syms[i].Value == v && syms[i].Type == elf.STT_FUNC
}

func sortedRanges(m map[Range]*entry) []Range {
	rs := make([]Range, 0, len(m))
	for r := range m {
		rs = append(rs, r)
	}
	slices.SortFunc(rs, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	return rs
}
