// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Discrepancy is a site whose counters disagree with its outstanding
// allocations.
type Discrepancy struct {
	Stack    alloc.StackID
	Function uint16
	// Objects and Bytes are allocated minus freed minus outstanding.
	Objects, Bytes int64
}

// Check compares counters with outstanding allocations, which are recorded
// independently of each other: allocated - freed = outstanding must hold at
// every site. It holds at rest only, that is when both were read with no
// allocation in between: the probes gone, the target stopped or exited. A
// discrepancy then means that an update of one of the two was lost. The result
// is sorted by stack and function, and empty if the books balance.
func Check(live []Live, counters []Counter) []Discrepancy {
	diff := make(map[site]*Discrepancy)
	at := func(stack alloc.StackID, function uint16) *Discrepancy {
		k := site{stack, function}
		d := diff[k]
		if d == nil {
			d = &Discrepancy{Stack: stack, Function: function}
			diff[k] = d
		}
		return d
	}
	for i := range counters {
		c := &counters[i]
		d := at(c.Stack, c.Function)
		// Differences of wrapped sums are right as long as they fit.
		d.Objects += int64(c.AllocObjects - c.FreeObjects)
		d.Bytes += int64(c.AllocBytes - c.FreeBytes)
	}
	for i := range live {
		l := &live[i]
		d := at(l.Stack, l.Function)
		d.Objects--
		d.Bytes -= int64(l.Size)
	}
	var list []Discrepancy
	for _, d := range diff {
		if d.Objects != 0 || d.Bytes != 0 {
			list = append(list, *d)
		}
	}
	slices.SortFunc(list, func(a, b Discrepancy) int {
		return cmp.Or(cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Function, b.Function))
	})
	return list
}
