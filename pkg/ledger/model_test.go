// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
)

var long = flag.Bool("long", false, "run random sequences ten times as long")

// modelOps is the length of random sequences.
func modelOps() int {
	if *long {
		return 1_000_000
	}
	return 100_000
}

// owner is what the models know of a page: which call mapped it.
type owner struct {
	id    int
	stack alloc.StackID
	time  uint64
}

// tally counts pages and objects a stack.
type tally map[alloc.StackID]struct{ Objects, Pages uint64 }

// count turns owned pages into a tally.
func count(pages map[uint64]owner) tally {
	t, seen := tally{}, map[int]bool{}
	for _, o := range pages {
		x := t[o.stack]
		x.Pages++
		if !seen[o.id] {
			seen[o.id] = true
			x.Objects++
		}
		t[o.stack] = x
	}
	return t
}

// tallyOf is the same from the books.
func tallyOf(m *Mappings) tally {
	t := tally{}
	for _, l := range m.Live() {
		x := t[l.Stack]
		x.Pages += l.Size / page
		x.Objects++
		t[l.Stack] = x
	}
	return t
}

// naive applies the rules documented at Mappings page by page, and remembers
// for ever what was replaced.
type naive struct {
	pages    map[uint64]owner
	replaced []replacedPage
	next     int
}

type replacedPage struct{ page, born, gone uint64 }

// had reports whether a call entered at the given time found the page mapped.
func (n *naive) had(page, entry uint64) bool {
	if o, ok := n.pages[page]; ok && o.time <= entry {
		return true
	}
	for i := len(n.replaced) - 1; i >= 0; i-- {
		x := n.replaced[i]
		if x.page == page && x.born <= entry && entry < x.gone {
			return true
		}
		if x.gone <= entry {
			break
		}
	}
	return false
}

// maxOverlap is how long random calls take at most.
const maxOverlap = 20

func (n *naive) apply(e MapEvent) {
	first, pages := e.Addr/page, (e.Len+page-1)/page
	remove := func(first, pages, by uint64) {
		for p := first; p < first+pages; p++ {
			if o, ok := n.pages[p]; ok && o.time <= by {
				delete(n.pages, p)
			}
		}
	}
	replace := func(first, pages uint64, mapped bool) {
		for p := first; p < first+pages; p++ {
			if o, ok := n.pages[p]; ok {
				n.replaced = append(n.replaced, replacedPage{p, o.time, e.Time})
				delete(n.pages, p)
			}
			if mapped {
				n.pages[p] = owner{n.next, e.Stack, e.Time}
			}
		}
		n.next++
	}
	switch e.Op {
	case OpMap:
		replace(first, pages, true)
	case OpCover:
		replace(first, pages, false)
	case OpUnmap:
		remove(first, pages, e.EntryTime)
	case OpRemap:
		tracked := false
		for p := first; p < first+pages; p++ {
			tracked = tracked || n.had(p, e.EntryTime)
		}
		if !e.KeepOld {
			remove(first, pages, e.EntryTime)
		}
		replace(e.NewAddr/page, (e.NewLen+page-1)/page, tracked)
	}
}

// TestMappingsAgainstNaiveModel applies arbitrary events, sensible or not, with
// overlapping calls, to the books and to a model of one entry a page.
func TestMappingsAgainstNaiveModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 3))
			space := []uint64{24, 100, 400, 2000}[seed] // pages
			m, n := NewMappings(page), &naive{pages: map[uint64]owner{}}
			ops := modelOps() / 4
			for i := range ops {
				e := randomEvent(r, space, uint64(i)+maxOverlap)
				m.Apply(e)
				n.apply(e)
				if i%97 != 0 && i != ops-1 {
					continue
				}
				if diff := cmp.Diff(count(n.pages), tallyOf(m)); diff != "" {
					t.Fatalf("after event %d, %+v (-model +books):\n%s", i, e, diff)
				}
				if d := Check(m.Live(), m.Counters()); d != nil {
					t.Fatalf("after event %d: books do not balance: %+v", i, d)
				}
			}
		})
	}
}

func randomEvent(r *rand.Rand, space, now uint64) MapEvent {
	e := MapEvent{
		Op:        MapOp(1 + r.IntN(4)),
		Addr:      r.Uint64N(space) * page,
		Len:       1 + r.Uint64N(space*page/5),
		Stack:     alloc.StackID(r.IntN(5)),
		EntryTime: now - r.Uint64N(maxOverlap),
		Time:      now,
	}
	if e.Op == OpRemap {
		e.NewAddr, e.NewLen = r.Uint64N(space)*page, 1+r.Uint64N(space*page/5)
		e.KeepOld = r.IntN(4) == 0
	}
	return e
}

// FuzzMappings does the same with sequences of the fuzzer's making.
func FuzzMappings(f *testing.F) {
	f.Add([]byte{0, 1, 4, 0, 0, 1, 1, 1, 2, 3, 0, 0, 2, 1, 2, 4, 5, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, n := NewMappings(page), &naive{pages: map[uint64]owner{}}
		now := uint64(maxOverlap)
		for len(b) >= 6 {
			e := MapEvent{
				Op:        MapOp(1 + b[0]%4),
				Addr:      uint64(b[1]) * page,
				Len:       1 + uint64(b[2])*(page/4),
				NewAddr:   uint64(b[3]) * page,
				NewLen:    1 + uint64(b[4])*(page/4),
				KeepOld:   b[0]&0x80 != 0,
				Stack:     alloc.StackID(b[5] % 8),
				EntryTime: now - uint64(b[5]>>4),
				Time:      now,
			}
			m.Apply(e)
			n.apply(e)
			b, now = b[6:], now+1
		}
		if diff := cmp.Diff(count(n.pages), tallyOf(m)); diff != "" {
			t.Fatalf("(-model +books):\n%s", diff)
		}
		if d := Check(m.Live(), m.Counters()); d != nil {
			t.Fatalf("books do not balance: %+v", d)
		}
	})
}

// kernel simulates an address space that several threads map and unmap at
// once. Each call has an entry, a moment at which the kernel acts, and a
// return; those of different threads interleave at random. Its pages are the
// truth that the ordering rule must arrive at from the returns alone.
type kernel struct {
	r       *rand.Rand
	now     uint64
	next    int
	space   uint64
	pages   map[uint64]owner // anonymous since attach
	other   map[uint64]bool  // mapped too, but not ours: files, before attach
	regions []region         // known to the program: their map has returned
	threads []*thread
}

// region is a range the program may operate on. Threads take it out of the
// list while they do, as a program that does not race with itself.
type region struct {
	first, pages uint64
	foreign      bool
}

type thread struct {
	event MapEvent
	stage int // 0 idle, 1 entered, 2 acted
	old   region
	rest  []region // what the program owns when the call has returned
}

// findFree returns a free range, first fit from a random start, so that ranges
// just unmapped are soon reused.
func (k *kernel) findFree(pages uint64) (uint64, bool) {
	start := k.r.Uint64N(k.space)
search:
	for i := range k.space {
		first := (start + i) % k.space
		if first+pages > k.space {
			continue
		}
		for p := first; p < first+pages; p++ {
			if _, ok := k.pages[p]; ok || k.other[p] {
				continue search
			}
		}
		return first, true
	}
	return 0, false
}

// enter starts a random call.
func (k *kernel) enter(t *thread) {
	t.event = MapEvent{Op: MapOp(1 + k.r.IntN(4)), Stack: alloc.StackID(k.r.IntN(6)), EntryTime: k.now}
	t.rest, t.old = nil, region{}
	fixed := k.r.IntN(8) == 0
	if (t.event.Op == OpMap || t.event.Op == OpCover) && !fixed {
		t.event.Len = 1 + k.r.Uint64N(6)*page
	} else {
		if len(k.regions) == 0 {
			return
		}
		i := k.r.IntN(len(k.regions))
		whole := k.regions[i]
		k.regions = slices.Delete(k.regions, i, i+1)
		// Operate on a part, keep what is left and right of it.
		lo := k.r.Uint64N(whole.pages)
		n := 1 + k.r.Uint64N(whole.pages-lo)
		t.old = region{whole.first + lo, n, whole.foreign}
		if lo > 0 {
			t.rest = append(t.rest, region{whole.first, lo, whole.foreign})
		}
		if after := whole.pages - lo - n; after > 0 {
			t.rest = append(t.rest, region{whole.first + lo + n, after, whole.foreign})
		}
		t.event.Addr, t.event.Len = t.old.first*page, t.old.pages*page
		t.event.NewLen = (1 + k.r.Uint64N(8)) * page
	}
	t.stage = 1
}

// unmap takes a range out of the address space.
func (k *kernel) unmap(r region) {
	for p := r.first; p < r.first+r.pages; p++ {
		delete(k.pages, p)
		delete(k.other, p)
	}
}

// act does what the kernel does inside the call.
func (k *kernel) act(t *thread) {
	e := &t.event
	result := region{first: t.old.first, pages: (e.Len + page - 1) / page}
	foreign := e.Op == OpCover
	switch e.Op {
	case OpMap, OpCover:
		if e.Addr == 0 {
			first, ok := k.findFree(result.pages)
			if !ok {
				t.stage = 0 // the call fails, no event
				return
			}
			result.first = first
			e.Addr = first * page
		} else {
			k.unmap(t.old)
		}
	case OpUnmap:
		k.unmap(t.old)
		t.stage = 2
		return
	case OpRemap:
		foreign = t.old.foreign
		result.pages = e.NewLen / page
		k.unmap(t.old)
		if result.pages > t.old.pages {
			first, ok := k.findFree(result.pages)
			if !ok {
				result.pages = t.old.pages // shrunk to itself instead
				e.NewLen = result.pages * page
				first = t.old.first
			}
			result.first = first
		}
		e.NewAddr = result.first * page
	}
	for p := result.first; p < result.first+result.pages; p++ {
		if foreign {
			k.other[p] = true
		} else {
			k.pages[p] = owner{id: k.next, stack: e.Stack}
		}
	}
	k.next++
	result.foreign = foreign
	t.rest = append(t.rest, result)
	t.stage = 2
}

// leave returns from the call: the event is emitted and the program knows the
// result.
func (k *kernel) leave(t *thread, m *Mappings) {
	t.event.Time = k.now
	m.Apply(t.event)
	k.regions = append(k.regions, t.rest...)
	t.stage = 0
}

// step lets one thread do one thing, or finish.
func (k *kernel) step(t *thread, m *Mappings, finish bool) {
	k.now++
	switch t.stage {
	case 0:
		if !finish {
			k.enter(t)
		}
	case 1:
		k.act(t)
		if t.stage == 0 {
			k.regions = append(k.regions, t.rest...)
		}
	case 2:
		k.leave(t, m)
	}
}

// TestMappingsAgainstKernel compares the books with a simulated kernel whenever
// no call is under way.
func TestMappingsAgainstKernel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			k := &kernel{
				r:     rand.New(rand.NewPCG(seed, 5)),
				space: 60 + 40*seed, // crowded, so that ranges are reused at once
				pages: map[uint64]owner{},
				other: map[uint64]bool{},
			}
			for range 2 + 2*seed {
				k.threads = append(k.threads, new(thread))
			}
			for first := uint64(3); first < 20; first += 5 {
				k.regions = append(k.regions, region{first, 3, true})
				for p := first; p < first+3; p++ {
					k.other[p] = true
				}
			}
			m := NewMappings(page)
			for i := range modelOps() / 4 {
				k.step(k.threads[k.r.IntN(len(k.threads))], m, false)
				if i%500 != 499 {
					continue
				}
				for _, th := range k.threads {
					for th.stage != 0 {
						k.step(th, m, true)
					}
				}
				if diff := cmp.Diff(count(k.pages), tallyOf(m)); diff != "" {
					t.Fatalf("after %d steps (-kernel +books):\n%s", i, diff)
				}
				if d := Check(m.Live(), m.Counters()); d != nil {
					t.Fatalf("after %d steps: books do not balance: %+v", i, d)
				}
			}
		})
	}
}
