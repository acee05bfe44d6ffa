// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Outstanding is an allocation that has not been freed.
type Outstanding struct {
	Address, Size uint64
	Kind          alloc.Kind
	Site          alloc.StackID
	Time          uint64 // CLOCK_MONOTONIC, ns
	TID           int
	Function      int // row
}

// SiteCounter is what one site allocated and freed.
type SiteCounter struct {
	Site                                             alloc.StackID
	AllocObjects, AllocBytes, FreeObjects, FreeBytes uint64
	Sent                                             bool // its stack has been sent
}

// kindMask selects the kind in a key of live; above it is the thread that is
// resizing the block.
const kindMask = 1<<32 - 1

// batch is how many elements one system call copies. A bucket that does not fit
// makes the kernel answer ENOSPC; no bucket of these hashes gets near.
const batch = 4096

// iterate calls f for every element. Elements that come or go meanwhile may be
// missed or not; none is given twice.
func iterate[K, V any](m *ebpf.Map, f func(K, V)) error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, batch), make([]V, batch)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			f(keys[i], values[i])
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("reading map %s: %w", m, err)
		}
	}
}

// Live reads all outstanding allocations, unsorted.
func (o *Objects) Live() ([]Outstanding, error) {
	var out []Outstanding
	err := iterate(o.coll.Maps["live"], func(k allocLiveKey, v allocOutstanding) {
		out = append(out, Outstanding{
			Address: k.Address, Size: v.Size, Kind: alloc.Kind(k.Space & kindMask), Site: alloc.StackID(v.Site),
			Time: v.Time, TID: int(v.Tid), Function: int(v.Function),
		})
	})
	return out, err
}

// Sites reads the counters of all sites, unsorted.
func (o *Objects) Sites() ([]SiteCounter, error) {
	var out []SiteCounter
	err := iterate(o.coll.Maps["sites"], func(k uint64, v allocSite) {
		out = append(out, SiteCounter{
			Site: alloc.StackID(k), AllocObjects: v.AllocObjects, AllocBytes: v.AllocBytes,
			FreeObjects: v.FreeObjects, FreeBytes: v.FreeBytes, Sent: v.Sent != 0,
		})
	})
	return out, err
}

// Counters are the programs' totals and reasons. Only those that a reader needs
// by name have a field.
type Counters struct {
	Allocations, AllocatedBytes   int64
	Frees, FreedBytes             int64
	FreesUnmatched                int64
	UnmatchedBytes                int64
	FailedCalls, Nested, Replaced int64
	InternalMaps                  int64
	Hits, Forks                   int64
	ReusedFrames, UnwoundFrames   int64
	ReuseRefuted, Repaired        int64
	Faults                        int64
	StackNotSent, CodeNotSent     int64
	Complete                      int64         // stacks that reached the thread's start
	Partial                       []alloc.Cause // the others
	PythonDone, PythonNoThread    int64
	PythonMissing                 []alloc.Cause
	Lost                          []alloc.Cause // what makes numbers wrong
}

// reasons are the counters that mean loss, with what a person must know.
var reasons = []struct {
	which  allocCounter
	name   string
	detail string
}{
	{allocCounterCOUNT_NO_SCRATCH, "no_thread_memory", "calls not counted: no kernel memory for the thread's state"},
	{allocCounterCOUNT_LIVE_FULL, "live_full", "allocations not counted: the table of outstanding allocations is full (raise --max-live)"},
	{allocCounterCOUNT_SITES_FULL, "sites_full", "allocations not counted: the table of stacks is full (raise --max-stacks)"},
	{allocCounterCOUNT_INFLIGHT_FULL, "nested_too_deep", "calls not counted: allocator calls nested more than 8 deep"},
	{allocCounterCOUNT_THROWS, "throwing_calls", "calls of operator new not counted: near a limit, where a probe at the return would turn bad_alloc into an abort"},
	{allocCounterCOUNT_ALTSTACK, "signal_on_altstack", "calls not counted: made in a signal handler on an alternate stack that interrupted an allocator call"},
	{allocCounterCOUNT_OUT_POINTER, "out_pointer_unreadable", "allocations not counted: the address could not be read"},
	{allocCounterCOUNT_EVENT_LOST, "notices_lost", "notices of new code or of an exec that did not fit into the ring buffer"},
	{allocCounterCOUNT_MAP_LOST, "map_events_lost", "mmap calls not counted: ring buffer full"},
	{allocCounterCOUNT_SAMPLE_LOST, "samples_lost", "samples missing from the totals: ring buffer full"},
}

var partial = map[int]alloc.Cause{
	2: {Name: "unknown_mapping", Detail: "code outside every known file: generated at run time, or a library just loaded"},
	3: {Name: "no_unwind_row", Detail: "the file has no unwind information for the address"},
	4: {Name: "stack_unreadable", Detail: "stack memory could not be read"},
	5: {Name: "too_deep", Detail: "more than 256 native frames: the innermost 256 are kept"},
	6: {Name: "unwind_invalid", Detail: "the unwind information marks the address as not unwindable"},
	7: {Name: "native_off", Detail: "native frames were not asked for"},
}

var pythonMissing = map[int]alloc.Cause{
	3: {Name: "python_unreadable", Detail: "interpreter memory could not be read"},
	4: {Name: "python_too_deep", Detail: "more than 256 Python frames: the innermost 256 are kept"},
}

// Counters sums the counters of all CPUs.
func (o *Objects) Counters() (*Counters, error) {
	var sum [allocCounterCOUNT_END]int64
	m := o.coll.Maps["counters"]
	var per []uint64
	for i := range sum {
		if err := m.Lookup(uint32(i), &per); err != nil {
			return nil, fmt.Errorf("reading counter %d: %w", i, err)
		}
		for _, v := range per {
			sum[i] += int64(v)
		}
	}
	c := &Counters{
		Allocations: sum[allocCounterCOUNT_ALLOCATIONS], AllocatedBytes: sum[allocCounterCOUNT_ALLOCATED_BYTES],
		Frees: sum[allocCounterCOUNT_FREES], FreedBytes: sum[allocCounterCOUNT_FREED_BYTES],
		FreesUnmatched: sum[allocCounterCOUNT_FREES_UNMATCHED], UnmatchedBytes: sum[allocCounterCOUNT_UNMATCHED_BYTES],
		FailedCalls: sum[allocCounterCOUNT_FAILED_CALLS], Nested: sum[allocCounterCOUNT_NESTED],
		Replaced: sum[allocCounterCOUNT_REPLACED], InternalMaps: sum[allocCounterCOUNT_INTERNAL_MAPS],
		Hits: sum[allocCounterCOUNT_HITS], Forks: sum[allocCounterCOUNT_FORKS],
		ReusedFrames: sum[allocCounterCOUNT_REUSED_FRAMES], UnwoundFrames: sum[allocCounterCOUNT_UNWOUND_FRAMES],
		ReuseRefuted: sum[allocCounterCOUNT_REUSE_REFUTED], Repaired: sum[allocCounterCOUNT_REPAIRED],
		Faults:       sum[allocCounterCOUNT_FAULTS],
		StackNotSent: sum[allocCounterCOUNT_STACK_NOT_SENT], CodeNotSent: sum[allocCounterCOUNT_CODE_NOT_SENT],
		Complete:   sum[allocCounterCOUNT_UNWIND+1],
		PythonDone: sum[allocCounterCOUNT_PYTHON+1], PythonNoThread: sum[allocCounterCOUNT_PYTHON+2],
	}
	for _, r := range reasons {
		if n := sum[r.which]; n > 0 {
			c.Lost = append(c.Lost, alloc.Cause{Name: r.name, Detail: r.detail, Count: n})
		}
	}
	c.addUnknownReturns(o.mode, sum[allocCounterCOUNT_RETURN_UNKNOWN]-
		sum[allocCounterCOUNT_NO_SCRATCH]-sum[allocCounterCOUNT_INFLIGHT_FULL])
	if n := sum[allocCounterCOUNT_CODE_FAULT]; n > 0 {
		c.PythonMissing = append(c.PythonMissing, alloc.Cause{
			Name: "code_unreadable", Detail: "code objects whose name, file or lines could not be read", Count: n,
		})
	}
	for s := range 8 {
		if x, ok := partial[s]; ok && sum[allocCounterCOUNT_UNWIND+allocCounter(s)] > 0 {
			x.Count = sum[allocCounterCOUNT_UNWIND+allocCounter(s)]
			c.Partial = append(c.Partial, x)
		}
		if x, ok := pythonMissing[s]; ok && sum[allocCounterCOUNT_PYTHON+allocCounter(s)] > 0 {
			x.Count = sum[allocCounterCOUNT_PYTHON+allocCounter(s)]
			c.PythonMissing = append(c.PythonMissing, x)
		}
	}
	return c, nil
}

// addUnknownReturns tells of returns whose entry was not known. A session sees
// both or none, so each is an allocation that was not counted. With links of the
// older kinds calls that were on their way at attach return like that too.
func (c *Counters) addUnknownReturns(mode Mode, n int64) {
	if mode != ModeSession || n <= 0 {
		return
	}
	c.Lost = append(c.Lost, alloc.Cause{
		Name: "return_unknown", Detail: "calls not counted: their entry was not known when they returned", Count: n,
	})
}
