// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"cmp"
	"slices"
	"sort"
)

// maxNesting bounds the search for an interval around others. Real ones nest
// or repeat a few times, where the linker folds identical code.
const maxNesting = 64

// interval is a range of addresses [lo, hi) and what stands there.
type interval struct {
	lo, hi uint64
	ref    uint32
	parent uint32 // one more than the last earlier interval that reaches beyond lo; 0 if none
}

// index finds the innermost interval around an address.
type index []interval

// add appends an interval. Empty ones and those at 0, where linkers put what
// they threw away, are left out.
func (x *index) add(lo, hi uint64, ref uint32) {
	if lo != 0 && lo < hi {
		*x = append(*x, interval{lo: lo, hi: hi, ref: ref})
	}
}

// sort makes the index ready for find: by start, then the larger first.
func (x index) sort() {
	slices.SortFunc(x, func(a, b interval) int {
		return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(b.hi, a.hi), cmp.Compare(a.ref, b.ref))
	})
	// Chains of parents skip what has ended; each interval is skipped once.
	for i := range x {
		p := uint32(i)
		for p > 0 && x[p-1].hi <= x[i].lo {
			p = x[p-1].parent
		}
		x[i].parent = p
	}
}

// find returns the last to start of the intervals that contain pc.
func (x index) find(pc uint64) (*interval, bool) {
	i := sort.Search(len(x), func(i int) bool { return x[i].lo > pc })
	for n := 0; i > 0 && n < maxNesting; n++ {
		r := &x[i-1]
		if pc < r.hi {
			return r, true
		}
		i = int(r.parent)
	}
	return nil, false
}
