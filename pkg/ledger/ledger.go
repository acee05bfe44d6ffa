// SPDX-License-Identifier: Apache-2.0

// Package ledger turns what the kernel recorded into allocation sites: what is
// outstanding, what was allocated, since when, per stack and allocation
// function.
//
// The BPF programs pair heap allocations with their frees themselves, so for
// the heap the ledger only groups, ages and scales what a snapshot of the
// kernel's maps holds (Observation). Anonymous mappings cannot be paired by
// address, since munmap and mremap take any range: for these the ledger keeps
// the books from a stream of events (Mappings).
//
// Everything here is arithmetic on values handed in: no clock, no file, no
// kernel, no goroutine. Equal input gives equal output. No type is safe for
// concurrent use.
package ledger

import (
	"fmt"
	"math"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Live is one outstanding allocation.
type Live struct {
	Addr     uint64 // where it starts
	Size     uint64 // bytes asked for; for mappings bytes still mapped
	Stack    alloc.StackID
	Function uint16 // row of the table of allocation functions
	TID      uint32 // thread that allocated it
	Time     uint64 // when, in ns since boot (CLOCK_MONOTONIC)
}

// Counter holds the totals of one allocation function called from one stack.
// Frees count for the stack that allocated, not for the one that freed.
type Counter struct {
	Stack                    alloc.StackID
	Function                 uint16
	AllocObjects, AllocBytes uint64
	FreeObjects, FreeBytes   uint64
}

// Sample counts the sampled allocations of one size made by one function from
// one stack.
type Sample struct {
	Stack    alloc.StackID
	Function uint16
	Size     uint64 // bytes of each
	Count    uint64
}

// site is what allocations are grouped by.
type site struct {
	stack    alloc.StackID
	function uint16
}

// function returns the row of a table, or a stand-in that names the row where
// the table is too short: such bytes must show up, not disappear.
func function(table []alloc.Function, row uint16) alloc.Function {
	if int(row) < len(table) {
		return table[row]
	}
	return alloc.Function{Name: fmt.Sprintf("function %d", row), Role: alloc.RoleAlloc}
}

// clamp converts a count to the signed type of profiles. A hostile target can
// claim sizes above it, whose sums must not come out negative.
func clamp(n uint64) int64 {
	return int64(min(n, math.MaxInt64))
}

// add is a + b, saturated.
func add(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
