// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
)

const page = 4096

// call builds an event that entered and returned at one moment, with lengths
// and addresses in pages.
func call(op MapOp, addr, n uint64, stack alloc.StackID, time uint64) MapEvent {
	return MapEvent{Op: op, Addr: addr * page, Len: n * page, Stack: stack, EntryTime: time, Time: time}
}

func remap(addr, n, newAddr, newLen uint64, stack alloc.StackID, time uint64) MapEvent {
	e := call(OpRemap, addr, n, stack, time)
	e.NewAddr, e.NewLen = newAddr*page, newLen*page
	return e
}

func TestMappings(t *testing.T) {
	type left struct {
		Stack alloc.StackID
		Addr  uint64 // pages
		Pages uint64
	}
	keepOld := func(e MapEvent) MapEvent { e.KeepOld = true; return e }
	during := func(e MapEvent, entry uint64) MapEvent { e.EntryTime = entry; return e }

	tests := []struct {
		name   string
		events []MapEvent
		want   []left
		stats  MapStats
	}{{
		name:   "unmap whole",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), call(OpUnmap, 10, 4, 0, 2)},
	}, {
		name:   "unmap head",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), call(OpUnmap, 10, 1, 0, 2)},
		want:   []left{{1, 11, 3}},
	}, {
		name:   "unmap middle leaves one object of two pieces",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), call(OpUnmap, 11, 2, 0, 2)},
		want:   []left{{1, 10, 2}},
	}, {
		name: "unmap across mappings and a hole",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpMap, 20, 4, 2, 2), call(OpMap, 30, 4, 3, 3),
			call(OpUnmap, 12, 20, 0, 4),
		},
		want: []left{{1, 10, 2}, {3, 32, 2}},
	}, {
		name:   "unmap of what is not tracked",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), call(OpUnmap, 14, 4, 0, 2), call(OpUnmap, 6, 4, 0, 3)},
		want:   []left{{1, 10, 4}},
		stats:  MapStats{UnmapsUntracked: 2},
	}, {
		name:   "fixed map over another",
		events: []MapEvent{call(OpMap, 10, 8, 1, 1), call(OpMap, 12, 2, 2, 2)},
		want:   []left{{1, 10, 6}, {2, 12, 2}},
	}, {
		name:   "a file over another",
		events: []MapEvent{call(OpMap, 10, 8, 1, 1), call(OpCover, 12, 2, 2, 2), call(OpCover, 90, 2, 2, 3)},
		want:   []left{{1, 10, 6}},
	}, {
		name: "moving remap that returns after a file was mapped over the old range",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpCover, 10, 4, 2, 5), during(remap(10, 4, 20, 8, 3, 6), 4),
		},
		want: []left{{3, 20, 8}},
	}, {
		name:   "remap grows in place: the result is the remap's",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), remap(10, 4, 10, 6, 2, 2)},
		want:   []left{{2, 10, 6}},
	}, {
		name:   "remap shrinks",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), remap(10, 4, 10, 1, 2, 2)},
		want:   []left{{2, 10, 1}},
	}, {
		name:   "remap moves a part",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), remap(11, 2, 50, 3, 2, 2)},
		want:   []left{{1, 10, 2}, {2, 50, 3}},
	}, {
		name:   "remap onto another mapping",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), call(OpMap, 20, 4, 2, 2), remap(10, 4, 22, 4, 3, 3)},
		want:   []left{{2, 20, 2}, {3, 22, 4}},
	}, {
		name:   "remap that leaves the old range",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), keepOld(remap(10, 4, 20, 4, 2, 2))},
		want:   []left{{1, 10, 4}, {2, 20, 4}},
	}, {
		name:   "remap of length 0 is a second view",
		events: []MapEvent{call(OpMap, 10, 4, 1, 1), remap(10, 0, 20, 4, 2, 2)},
		want:   []left{{1, 10, 4}, {2, 20, 4}},
	}, {
		name:   "remap of what is not tracked",
		events: []MapEvent{remap(10, 4, 20, 8, 2, 2)},
		stats:  MapStats{RemapsUntracked: 1, RemapBytesUntracked: 8 * page},
	}, {
		name:   "untracked remap onto a tracked mapping",
		events: []MapEvent{call(OpMap, 20, 4, 1, 1), remap(10, 4, 21, 2, 2, 2)},
		want:   []left{{1, 20, 2}},
		stats:  MapStats{RemapsUntracked: 1, RemapBytesUntracked: 2 * page},
	}, {
		name: "unmap that returns after another thread mapped the range",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpMap, 10, 4, 2, 5), during(call(OpUnmap, 10, 4, 0, 6), 4),
		},
		want: []left{{2, 10, 4}},
	}, {
		name: "moving remap that returns after another thread mapped the old range",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpMap, 10, 4, 2, 5), during(remap(10, 4, 20, 8, 3, 6), 4),
		},
		want: []left{{2, 10, 4}, {3, 20, 8}},
	}, {
		name: "remap of a foreign range where a mapping of ours was replaced long before",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpMap, 10, 4, 2, 5), call(OpUnmap, 10, 4, 0, 6), remap(10, 4, 20, 8, 3, 7),
		},
		stats: MapStats{RemapsUntracked: 1, RemapBytesUntracked: 8 * page},
	}, {
		name: "the same for part of the range",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpMap, 11, 1, 2, 5), during(call(OpUnmap, 10, 4, 0, 6), 4),
		},
		want: []left{{2, 11, 1}},
	}, {
		name: "shrinking remap that returns after another thread mapped the tail",
		events: []MapEvent{
			call(OpMap, 10, 4, 1, 1), call(OpMap, 12, 2, 2, 5), during(remap(10, 4, 10, 2, 3, 6), 4),
		},
		want: []left{{3, 10, 2}, {2, 12, 2}},
	}, {
		name:   "unmap entered at the tick of the map's return",
		events: []MapEvent{call(OpMap, 10, 4, 1, 7), call(OpUnmap, 10, 4, 0, 7)},
	}, {
		name: "lengths are rounded up to pages",
		events: []MapEvent{
			{Op: OpMap, Addr: 10 * page, Len: page + 1, Stack: 1, Time: 1},
			{Op: OpUnmap, Addr: 11 * page, Len: 1, EntryTime: 2, Time: 2},
		},
		want: []left{{1, 10, 1}},
	}, {
		name:   "huge pages",
		events: []MapEvent{{Op: OpMap, Addr: 512 * page, Len: 1, PageSize: 512 * page, Stack: 1, Time: 1}},
		want:   []left{{1, 512, 512}},
	}, {
		name: "nonsense is ignored and counted",
		events: []MapEvent{
			call(OpMap, 10, 0, 1, 1),
			{Op: OpMap, Addr: 10*page + 1, Len: page},
			{Op: OpMap, Addr: 1<<64 - page, Len: page},
			{Op: OpMap, Addr: page, Len: 1<<64 - 1},
			{Op: 99, Addr: page, Len: page},
			remap(10, 4, 20, 0, 1, 1),
		},
		stats: MapStats{Invalid: 6},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMappings(page)
			for _, e := range tt.events {
				m.Apply(e)
			}
			var got []left
			for _, l := range m.Live() {
				got = append(got, left{l.Stack, l.Addr / page, l.Size / page})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("live (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.stats, m.Stats()); diff != "" {
				t.Errorf("stats (-want +got):\n%s", diff)
			}
			if d := Check(m.Live(), m.Counters()); d != nil {
				t.Errorf("books do not balance: %+v", d)
			}
		})
	}
}

func TestMappingsObjects(t *testing.T) {
	m := NewMappings(page)
	m.Apply(call(OpMap, 10, 4, 1, 1))
	m.Apply(call(OpUnmap, 11, 1, 0, 2)) // split in two
	m.Apply(call(OpUnmap, 10, 1, 0, 3)) // one of them gone
	want := []Counter{{Stack: 1, AllocObjects: 1, AllocBytes: 4 * page, FreeBytes: 2 * page}}
	if diff := cmp.Diff(want, m.Counters()); diff != "" {
		t.Errorf("with a piece left (-want +got):\n%s", diff)
	}
	m.Apply(call(OpUnmap, 0, 100, 0, 4))
	want = []Counter{{Stack: 1, AllocObjects: 1, AllocBytes: 4 * page, FreeObjects: 1, FreeBytes: 4 * page}}
	if diff := cmp.Diff(want, m.Counters()); diff != "" {
		t.Errorf("with nothing left (-want +got):\n%s", diff)
	}
}

func TestReconcile(t *testing.T) {
	m := NewMappings(page)
	m.Apply(call(OpMap, 10, 4, 1, 1))
	m.Apply(call(OpMap, 20, 4, 2, 2))
	m.Apply(call(OpMap, 30, 4, 3, 9)) // after the list was read
	mapped := []Range{{22 * page, 40 * page}, {0, 11 * page}, {22 * page, 23 * page}}
	mapped[0].End = 30 * page
	if got, want := m.Reconcile(mapped, 5), uint64(5*page); got != want {
		t.Errorf("reconciled %d bytes, want %d", got, want)
	}
	var pages []uint64
	for _, l := range m.Live() {
		pages = append(pages, l.Size/page)
	}
	if diff := cmp.Diff([]uint64{1, 2, 4}, pages); diff != "" {
		t.Errorf("pages left (-want +got):\n%s", diff)
	}
	if got, want := m.Reconcile(nil, 100), uint64(7*page); got != want {
		t.Errorf("reconciled %d bytes of a gone address space, want %d", got, want)
	}
	if d := Check(m.Live(), m.Counters()); d != nil {
		t.Errorf("books do not balance: %+v", d)
	}
	if got, want := m.Stats().Reconciled, uint64(12*page); got != want {
		t.Errorf("stats say %d bytes reconciled, want %d", got, want)
	}
}

func TestMappingsLimit(t *testing.T) {
	m := NewMappings(page)
	for i := range uint64(maxPieces + 3) {
		m.Apply(call(OpMap, 2*i, 1, 1, i))
	}
	if got := len(m.Live()); got != maxPieces {
		t.Errorf("%d mappings tracked, want %d", got, maxPieces)
	}
	if diff := cmp.Diff(MapStats{Dropped: 3, DroppedBytes: 3 * page}, m.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func BenchmarkMappings(b *testing.B) {
	m := NewMappings(page)
	const live = 60_000 // near the kernel's default limit of areas
	for i := range uint64(live) {
		m.Apply(call(OpMap, 4*i, 2, alloc.StackID(i%100), i))
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		at := uint64(i*7919%live) * 4
		m.Apply(call(OpUnmap, at, 2, 0, uint64(live+2*i)))
		m.Apply(call(OpMap, at, 2, alloc.StackID(i%100), uint64(live+2*i+1)))
	}
}
