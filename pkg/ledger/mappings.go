// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/tidwall/btree"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// MapOp says what a mapping event did.
type MapOp uint8

// The operations on mappings.
const (
	OpMap   MapOp = iota + 1 // mmap of anonymous memory
	OpUnmap                  // munmap
	OpRemap                  // mremap
	OpCover                  // mmap of what is not counted: a file, a reservation
)

// MapEvent is a successful call of mmap, munmap or mremap. Events are emitted
// when the call returns, and must be applied in the order of their emission.
type MapEvent struct {
	Op        MapOp
	Addr, Len uint64 // OpMap, OpCover: the new mapping; else the range given up
	// NewAddr and NewLen are the result of OpRemap.
	NewAddr, NewLen uint64
	// KeepOld says that OpRemap left the old range mapped
	// (MREMAP_DONTUNMAP, or an old length of 0).
	KeepOld bool
	// PageSize is that of the mapping where it is not the system's
	// (MAP_HUGETLB), a power of two; else 0.
	PageSize uint64

	Stack     alloc.StackID
	Function  uint16
	TID       uint32
	EntryTime uint64 // when the call was entered, in ns since boot
	Time      uint64 // when it returned
}

// MapStats says what happened to events that did not simply apply. Zero is
// perfect.
type MapStats struct {
	// UnmapsUntracked and RemapsUntracked are calls on ranges of which nothing
	// was tracked: mapped before attach, mapped from a file, or not mapped.
	UnmapsUntracked, RemapsUntracked uint64
	// RemapBytesUntracked are the bytes that those remaps resulted in. What
	// they grew by since attach is in no site.
	RemapBytesUntracked uint64
	// Reconciled are bytes that Reconcile found gone: unmapped by a system call
	// that no probe sees, or by one whose event was lost.
	Reconciled uint64
	// Dropped and DroppedBytes are mappings not tracked since maxPieces were.
	Dropped, DroppedBytes uint64
	// Invalid are events whose ranges make no sense, which were ignored.
	Invalid uint64
}

// maxPieces bounds the memory that a hostile target makes its observer use
// (about 130 MB). Linux allows 65,530 areas a process unless the administrator
// raised vm.max_map_count; neighbours that the kernel merges into one area are
// still separate here, hence the factor of 16.
const maxPieces = 1 << 20

// Mappings keeps the books of anonymous mappings made since attach, each
// attributed to the call that made it.
//
// munmap gives pages back wherever they are: a part of a mapping, or several
// with holes between. A mapping counts as one object as long as any page of it
// is left, and its bytes are those of the pages left; lengths are rounded up
// to pages, as the kernel does.
//
// mremap is to mappings what realloc is to the heap: the whole result belongs
// to the call of mremap, the old range is freed. It is counted only if some of
// the old range is tracked. mremap works within one area of the kernel, so one
// tracked page shows the whole range to be anonymous, and without any it may
// as well be a file.
//
// Two calls of different threads overlap in time, and their events come in the
// order of return, not in that of what the kernel did. An unmap therefore
// removes only pieces whose call had returned when it was entered: a younger
// piece was mapped after the kernel had unmapped the range, inside the call.
// In the other order, a map replaces whatever was tracked in its range, for
// the kernel hands out free addresses only, or MAP_FIXED unmapped them. That
// is exact for programs that do not race for the same addresses themselves.
// What a map replaced is remembered for a while (ghost), for the call that gave
// the range up may be a remap, whose result depends on what it was.
type Mappings struct {
	pageSize uint64
	pieces   btree.Map[uint64, piece] // by start; never overlapping, never empty
	counters map[site]*Counter
	ghosts   ghosts
	stats    MapStats
}

// piece is a contiguous part of a mapping. Its start is its key.
type piece struct {
	end uint64
	of  *mapping
}

// mapping is the result of one call.
type mapping struct {
	site
	tid    uint32
	time   uint64
	bytes  uint64 // left
	pieces int    // left
}

// NewMappings returns empty books for a target whose page size is a power of
// two.
func NewMappings(pageSize uint64) *Mappings {
	return &Mappings{pageSize: pageSize, counters: make(map[site]*Counter)}
}

// Apply enters one event.
func (m *Mappings) Apply(e MapEvent) {
	page := max(e.PageSize, m.pageSize)
	start, end, ok := pages(e.Addr, e.Len, page)
	if !ok && !(e.Op == OpRemap && e.Len == 0) {
		m.stats.Invalid++
		return
	}
	switch e.Op {
	case OpMap:
		m.insert(start, end, &e)
	case OpUnmap:
		if m.remove(start, end, e.EntryTime) == 0 && !m.ghosts.had(start, end, e.EntryTime) {
			m.stats.UnmapsUntracked++
		}
	case OpRemap:
		m.remap(start, end, page, &e)
	case OpCover:
		m.replace(start, end, e.Time)
	default:
		m.stats.Invalid++
	}
}

// remap moves or resizes [start, end); see Mappings for whose the result is.
func (m *Mappings) remap(start, end, page uint64, e *MapEvent) {
	newStart, newEnd, ok := pages(e.NewAddr, e.NewLen, page)
	if !ok {
		m.stats.Invalid++
		return
	}
	keep := e.KeepOld
	if e.Len == 0 { // a second view of shared memory: look at its first page
		start, end, keep = e.Addr, e.Addr+page, true
	}
	tracked := len(m.overlaps(start, end, e.EntryTime)) > 0 || m.ghosts.had(start, end, e.EntryTime)
	if !keep {
		m.remove(start, end, e.EntryTime)
	}
	if !tracked {
		m.stats.RemapsUntracked++
		m.stats.RemapBytesUntracked += newEnd - newStart
		m.replace(newStart, newEnd, e.Time) // MREMAP_FIXED unmaps its target
		return
	}
	m.insert(newStart, newEnd, e)
}

// insert enters a new mapping in place of all that is tracked in its range.
func (m *Mappings) insert(start, end uint64, e *MapEvent) {
	m.replace(start, end, e.Time)
	if m.pieces.Len() >= maxPieces {
		m.stats.Dropped++
		m.stats.DroppedBytes += end - start
		return
	}
	of := &mapping{
		site:   site{e.Stack, e.Function},
		tid:    e.TID,
		time:   e.Time,
		bytes:  end - start,
		pieces: 1,
	}
	m.pieces.Set(start, piece{end, of})
	c := m.counter(of.site)
	c.AllocObjects++
	c.AllocBytes += end - start
}

// replace takes out all that is tracked in [start, end), since a call that
// returned at the given time put something else there.
func (m *Mappings) replace(start, end, time uint64) {
	for _, at := range m.overlaps(start, end, math.MaxUint64) {
		p, _ := m.pieces.Get(at)
		m.ghosts.add(ghost{max(at, start), min(p.end, end), p.of.time, time})
	}
	m.remove(start, end, math.MaxUint64)
}

// remove takes [start, end) out of all mappings whose call had returned by the
// given time, and returns the bytes.
func (m *Mappings) remove(start, end, by uint64) uint64 {
	var removed uint64
	for _, at := range m.overlaps(start, end, by) {
		p, _ := m.pieces.Get(at)
		lo, hi := max(start, at), min(end, p.end)
		m.pieces.Delete(at)
		p.of.pieces--
		if at < lo {
			m.pieces.Set(at, piece{lo, p.of})
			p.of.pieces++
		}
		if hi < p.end {
			m.pieces.Set(hi, piece{p.end, p.of})
			p.of.pieces++
		}
		p.of.bytes -= hi - lo
		removed += hi - lo
		c := m.counter(p.of.site)
		c.FreeBytes += hi - lo
		if p.of.pieces == 0 {
			c.FreeObjects++
		}
	}
	return removed
}

// overlaps returns the starts of the pieces that share a page with [start,
// end) and whose call had returned by the given time.
func (m *Mappings) overlaps(start, end, by uint64) []uint64 {
	first := start
	m.pieces.Descend(start, func(at uint64, p piece) bool {
		if p.end > start {
			first = at
		}
		return false
	})
	var list []uint64
	m.pieces.Ascend(first, func(at uint64, p piece) bool {
		if at >= end {
			return false
		}
		// A return and an entry at the same tick of the clock are in this
		// order: the caller learnt the address from the return.
		if p.of.time <= by {
			list = append(list, at)
		}
		return true
	})
	return list
}

func (m *Mappings) counter(s site) *Counter {
	c := m.counters[s]
	if c == nil {
		c = &Counter{Stack: s.stack, Function: s.function}
		m.counters[s] = c
	}
	return c
}

// Live returns the mappings of which something is left, in the order of their
// lowest addresses, which is also their Addr.
func (m *Mappings) Live() []Live {
	var list []Live
	seen := make(map[*mapping]bool)
	m.pieces.Scan(func(at uint64, p piece) bool {
		if !seen[p.of] {
			seen[p.of] = true
			list = append(list, Live{
				Addr:     at,
				Size:     p.of.bytes,
				Stack:    p.of.stack,
				Function: p.of.function,
				TID:      p.of.tid,
				Time:     p.of.time,
			})
		}
		return true
	})
	return list
}

// Counters returns the totals, sorted by stack and function. They balance with
// Live in the sense of Check at any time.
func (m *Mappings) Counters() []Counter {
	list := make([]Counter, 0, len(m.counters))
	for _, c := range m.counters {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Counter) int {
		return cmp.Or(cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Function, b.Function))
	})
	return list
}

// Stats returns what did not simply apply so far.
func (m *Mappings) Stats() MapStats { return m.stats }

// pages rounds a range outward to whole pages. It reports false for one that
// is empty, not aligned or beyond the address space.
func pages(addr, n, page uint64) (start, end uint64, ok bool) {
	if n == 0 || addr%page != 0 || n > math.MaxUint64-(page-1) {
		return 0, 0, false
	}
	n = (n + page - 1) &^ (page - 1)
	if addr > math.MaxUint64-n {
		return 0, 0, false
	}
	return addr, addr + n, true
}
