// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Observation is the state of the books at one moment.
type Observation struct {
	Functions []alloc.Function // table that the rows below refer to
	Live      []Live           // heap and mappings together, in any order
	Counters  []Counter        // likewise; at most one a stack and function
	// Samples replace the counters of sampled functions when SampleBytes > 1.
	Samples []Sample
	// SampleBytes is the mean sampling interval in bytes; 0 and 1 mean that
	// every allocation was recorded. Mappings are never sampled.
	SampleBytes int64
	Now         uint64        // the moment, on the clock of Live.Time
	MinAge      time.Duration // leave younger allocations out of what is outstanding
}

// Sites groups the observation by stack and function. Outstanding memory comes
// from Live, totals since attach from Counters, or from Samples where the
// function is sampled; MinAge concerns the former only. In sampled mode both
// are unbiased estimates, rounded once a site.
//
// The sites carry no frames yet; whoever knows them fills Stack in by ID. They
// are sorted by outstanding bytes, then by allocated bytes, both descending,
// then by ID and function, and include those with totals only.
func (o *Observation) Sites() []alloc.Site {
	sums := make(map[site]*sum)
	at := func(stack alloc.StackID, function uint16) *sum {
		k := site{stack, function}
		s := sums[k]
		if s == nil {
			s = new(sum)
			sums[k] = s
		}
		return s
	}
	o.addLive(at)
	o.addTotals(at)

	sites := make([]alloc.Site, 0, len(sums))
	for k, s := range sums {
		f := function(o.Functions, k.function)
		sites = append(sites, s.site(k.stack, f))
	}
	slices.SortFunc(sites, func(a, b alloc.Site) int {
		return cmp.Or(
			cmp.Compare(b.InUseBytes, a.InUseBytes),
			cmp.Compare(b.AllocBytes, a.AllocBytes),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Function, b.Function),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
	return sites
}

// addLive enters what is outstanding.
func (o *Observation) addLive(at func(alloc.StackID, uint16) *sum) {
	live := o.Live
	if o.SampleBytes > 1 {
		// Sums of floats depend on their order, reports must not.
		live = slices.Clone(live)
		slices.SortFunc(live, func(a, b Live) int {
			return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Addr, b.Addr))
		})
	}
	for i := range live {
		l := &live[i]
		age := time.Duration(0)
		if l.Time < o.Now { // the clock is read before the maps are
			age = time.Duration(clamp(o.Now - l.Time))
		}
		if age < o.MinAge {
			continue
		}
		s := at(l.Stack, l.Function)
		s.inUse.add(l.Size, 1, o.rate(l.Function))
		if !s.aged || age > s.oldest {
			s.oldest = age
		}
		if !s.aged || age < s.newest {
			s.newest = age
		}
		s.aged = true
	}
}

// addTotals enters what was allocated since attach.
func (o *Observation) addTotals(at func(alloc.StackID, uint16) *sum) {
	for i := range o.Counters {
		c := &o.Counters[i]
		if o.rate(c.Function) > 1 {
			continue
		}
		t := &at(c.Stack, c.Function).total
		t.bytes = add(t.bytes, clamp(c.AllocBytes))
		t.objects = add(t.objects, clamp(c.AllocObjects))
	}
	if o.SampleBytes <= 1 {
		return
	}
	samples := slices.Clone(o.Samples)
	slices.SortFunc(samples, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Count, b.Count))
	})
	for i := range samples {
		s := &samples[i]
		if rate := o.rate(s.Function); rate > 1 {
			at(s.Stack, s.Function).total.add(s.Size, s.Count, rate)
		}
	}
}

// rate returns the sampling interval that applies to a function. Mappings are
// few and large and reach the ledger as a complete stream of events.
func (o *Observation) rate(row uint16) int64 {
	switch function(o.Functions, row).Role {
	case alloc.RoleMap, alloc.RoleRemap:
		return 1
	}
	return max(o.SampleBytes, 1)
}

// sum collects the numbers of a site.
type sum struct {
	inUse, total   quantity
	oldest, newest time.Duration
	aged           bool // oldest and newest are set
}

func (s *sum) site(id alloc.StackID, f alloc.Function) alloc.Site {
	x := alloc.Site{ID: id, Function: f.Name, Kind: f.Kind, OldestAge: s.oldest, NewestAge: s.newest}
	x.InUseBytes, x.InUseObjects = s.inUse.round()
	x.AllocBytes, x.AllocObjects = s.total.round()
	return x
}
