// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"slices"
)

// Range is the addresses from Start up to but not including End.
type Range struct{ Start, End uint64 }

// Reconcile compares the books with what is really mapped, for instance by
// /proc/PID/maps, and frees whatever is tracked and not mapped. Not every unmap
// passes a probe: musl ends detached threads and Go frees memory by inline
// system calls. Mappings whose call returned after the given time, which must
// be read from CLOCK_MONOTONIC before the list is, are left alone. The list may
// be unsorted and overlapping; an empty one says that the address space is
// gone, as after an exec. Reconcile returns the bytes freed.
func (m *Mappings) Reconcile(mapped []Range, time uint64) uint64 {
	mapped = slices.Clone(mapped)
	slices.SortFunc(mapped, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	var freed, next uint64
	for _, r := range mapped {
		if r.Start > next {
			freed += m.remove(next, r.Start, time)
		}
		next = max(next, r.End)
	}
	if next < math.MaxUint64 {
		freed += m.remove(next, math.MaxUint64, time)
	}
	m.stats.Reconciled += freed
	return freed
}
