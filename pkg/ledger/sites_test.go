// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// table is what the rows of the tests refer to.
var table = []alloc.Function{
	{Name: "malloc", Role: alloc.RoleAlloc, Kind: alloc.KindHost},
	{Name: "realloc", Role: alloc.RoleRealloc, Kind: alloc.KindHost},
	{Name: "mmap", Role: alloc.RoleMap, Kind: alloc.KindMmap},
}

func TestSites(t *testing.T) {
	const s = uint64(time.Second)
	o := Observation{
		Functions: table,
		Now:       100 * s,
		Live: []Live{
			{Addr: 1, Size: 10, Stack: 7, Function: 0, Time: 90 * s},
			{Addr: 2, Size: 20, Stack: 7, Function: 0, Time: 40 * s},
			{Addr: 3, Size: 30, Stack: 7, Function: 1, Time: 99 * s},
			{Addr: 4, Size: 4096, Stack: 8, Function: 2, Time: 101 * s}, // read after the clock
			{Addr: 5, Size: 0, Stack: 9, Function: 0, Time: 99 * s},
			{Addr: 6, Size: 1, Stack: 9, Function: 77, Time: 99 * s}, // beyond the table
		},
		Counters: []Counter{
			{Stack: 7, Function: 0, AllocObjects: 3, AllocBytes: 60, FreeObjects: 1, FreeBytes: 30},
			{Stack: 7, Function: 1, AllocObjects: 1, AllocBytes: 30},
			{Stack: 8, Function: 2, AllocObjects: 1, AllocBytes: 4096},
			{Stack: 10, Function: 0, AllocObjects: 5, AllocBytes: 500, FreeObjects: 5, FreeBytes: 500},
		},
	}
	want := []alloc.Site{
		{ID: 8, Function: "mmap", Kind: alloc.KindMmap, InUseBytes: 4096, InUseObjects: 1, AllocBytes: 4096, AllocObjects: 1},
		{ID: 7, Function: "malloc", InUseBytes: 30, InUseObjects: 2, AllocBytes: 60, AllocObjects: 3,
			OldestAge: 60 * time.Second, NewestAge: 10 * time.Second},
		{ID: 7, Function: "realloc", InUseBytes: 30, InUseObjects: 1, AllocBytes: 30, AllocObjects: 1,
			OldestAge: time.Second, NewestAge: time.Second},
		{ID: 9, Function: "function 77", InUseBytes: 1, InUseObjects: 1,
			OldestAge: time.Second, NewestAge: time.Second},
		{ID: 10, Function: "malloc", AllocBytes: 500, AllocObjects: 5},
		{ID: 9, Function: "malloc", InUseObjects: 1, OldestAge: time.Second, NewestAge: time.Second},
	}
	if diff := cmp.Diff(want, o.Sites()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	slices.Reverse(o.Live)
	slices.Reverse(o.Counters)
	if diff := cmp.Diff(want, o.Sites()); diff != "" {
		t.Errorf("input in another order (-want +got):\n%s", diff)
	}

	o.MinAge = 5 * time.Second
	want = []alloc.Site{
		{ID: 7, Function: "malloc", InUseBytes: 30, InUseObjects: 2, AllocBytes: 60, AllocObjects: 3,
			OldestAge: 60 * time.Second, NewestAge: 10 * time.Second},
		{ID: 8, Function: "mmap", Kind: alloc.KindMmap, AllocBytes: 4096, AllocObjects: 1},
		{ID: 10, Function: "malloc", AllocBytes: 500, AllocObjects: 5},
		{ID: 7, Function: "realloc", AllocBytes: 30, AllocObjects: 1},
	}
	if diff := cmp.Diff(want, o.Sites()); diff != "" {
		t.Errorf("with a minimum age (-want +got):\n%s", diff)
	}
	o.MinAge = 11 * time.Second
	if got := o.Sites()[0]; got.InUseBytes != 20 || got.NewestAge != 60*time.Second {
		t.Errorf("site with one allocation old enough: %+v", got)
	}
}

func TestSitesSaturate(t *testing.T) {
	o := Observation{
		Functions: table,
		Live: []Live{
			{Size: math.MaxUint64, Stack: 1}, {Size: math.MaxUint64, Stack: 1},
		},
		Counters: []Counter{
			{Stack: 1, AllocBytes: math.MaxUint64, AllocObjects: 2}, {Stack: 1, AllocBytes: math.MaxUint64},
		},
	}
	for _, o.SampleBytes = range []int64{1, 512} {
		o.Samples = []Sample{{Stack: 1, Size: math.MaxUint64, Count: math.MaxUint64}}
		got := o.Sites()[0]
		if got.InUseBytes != math.MaxInt64 || got.AllocBytes != math.MaxInt64 {
			t.Errorf("sample bytes %d: sums of a hostile target's sizes: %+v", o.SampleBytes, got)
		}
	}
}

func TestCheck(t *testing.T) {
	live := []Live{{Size: 10, Stack: 1}, {Size: 20, Stack: 1}, {Size: 5, Stack: 2, Function: 1}}
	counters := []Counter{
		{Stack: 1, AllocObjects: 4, AllocBytes: 100, FreeObjects: 2, FreeBytes: 70},
		{Stack: 3, AllocObjects: 1, AllocBytes: 8, FreeObjects: 1, FreeBytes: 8},
		{Stack: 4, AllocObjects: 1, AllocBytes: 8},
	}
	want := []Discrepancy{
		{Stack: 2, Function: 1, Objects: -1, Bytes: -5},
		{Stack: 4, Objects: 1, Bytes: 8},
	}
	if diff := cmp.Diff(want, Check(live, counters)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWeight(t *testing.T) {
	tests := []struct {
		size uint64
		rate int64
		want float64
	}{
		{100, 0, 1},
		{100, 1, 1},
		{1 << 30, 512 << 10, 1},
		{512 << 10, 512 << 10, 1.5819767068693265}, // 1 / (1 - 1/e)
		{1, 1 << 40, 1<<40 + 0.5},                  // rate/size + 1/2 + ..., where 1 - exp(-x) has 4 digits left
		{0, 1 << 20, Weight(1, 1<<20)},
	}
	for _, tt := range tests {
		if got := Weight(tt.size, tt.rate); math.Abs(got-tt.want) > 1e-9*tt.want {
			t.Errorf("Weight(%d, %d) = %v, want %v", tt.size, tt.rate, got, tt.want)
		}
	}
}

// sampler is the countdown of one thread, as the BPF programs have it.
type sampler struct {
	r    *rand.Rand
	rate float64
	left float64
}

func newSampler(r *rand.Rand, rate int64) *sampler {
	return &sampler{r: r, rate: float64(rate), left: r.ExpFloat64() * float64(rate)}
}

func (s *sampler) sample(size uint64) bool {
	s.left -= float64(max(size, 1))
	if s.left > 0 {
		return false
	}
	s.left = s.r.ExpFloat64() * s.rate
	return true
}

// TestSamplingUnbiased runs a program many times under the sampler and compares
// the mean of the estimates with the truth. A site with few large allocations,
// one with many small ones, one of mixed sizes, by several threads, some freed.
func TestSamplingUnbiased(t *testing.T) {
	const (
		rate    = 4096
		runs    = 400
		threads = 3
	)
	sizes := []func(*rand.Rand) uint64{
		func(*rand.Rand) uint64 { return 48 },
		func(r *rand.Rand) uint64 { return 1 << r.IntN(16) }, // far below and above the rate
		func(r *rand.Rand) uint64 { return uint64(r.ExpFloat64() * 3000) },
		func(r *rand.Rand) uint64 { return 10_000 + r.Uint64N(100_000) },
	}
	type numbers [4]float64 // in use and total, bytes and objects
	var truth, sum, squares [4]numbers

	program := rand.New(rand.NewPCG(1, 2))
	type op struct {
		stack, thread int
		size          uint64
		freed         bool
	}
	var ops []op
	for range 3000 {
		o := op{program.IntN(len(sizes)), program.IntN(threads), 0, program.IntN(3) > 0}
		o.size = sizes[o.stack](program)
		ops = append(ops, o)
		n := numbers{0, 0, float64(o.size), 1}
		if !o.freed {
			n[0], n[1] = float64(o.size), 1
		}
		for i := range n {
			truth[o.stack][i] += n[i]
		}
	}

	for run := range uint64(runs) {
		r := rand.New(rand.NewPCG(run, 77))
		var samplers [threads]*sampler
		for i := range samplers {
			samplers[i] = newSampler(r, rate)
		}
		obs := Observation{Functions: table, SampleBytes: rate}
		for i, o := range ops {
			if !samplers[o.thread].sample(o.size) {
				continue
			}
			obs.Samples = append(obs.Samples, Sample{alloc.StackID(o.stack), 0, o.size, 1})
			if !o.freed {
				obs.Live = append(obs.Live, Live{Addr: uint64(i), Size: o.size, Stack: alloc.StackID(o.stack)})
			}
		}
		for _, s := range obs.Sites() {
			got := numbers{float64(s.InUseBytes), float64(s.InUseObjects), float64(s.AllocBytes), float64(s.AllocObjects)}
			for i, x := range got {
				sum[s.ID][i] += x
				squares[s.ID][i] += x * x
			}
		}
	}
	for stack := range truth {
		for i, name := range []string{"in-use bytes", "in-use objects", "allocated bytes", "allocated objects"} {
			mean := sum[stack][i] / runs
			deviation := math.Sqrt(squares[stack][i]/runs - mean*mean)
			// Four standard errors, and what rounding to integers may add.
			if off := math.Abs(mean - truth[stack][i]); off > 4*deviation/math.Sqrt(runs)+0.5 {
				t.Errorf("stack %d: mean of %s is %.1f, truth %.1f, standard error %.1f",
					stack, name, mean, truth[stack][i], deviation/math.Sqrt(runs))
			}
		}
	}
}

// TestSampledMappings checks that mappings are not scaled, and heap counters
// not used, in sampled mode.
func TestSampledMappings(t *testing.T) {
	o := Observation{
		Functions:   table,
		SampleBytes: 1 << 20,
		Live:        []Live{{Size: 4096, Stack: 1, Function: 2}, {Size: 1 << 20, Stack: 1}},
		Counters: []Counter{
			{Stack: 1, Function: 2, AllocObjects: 2, AllocBytes: 8192, FreeObjects: 1, FreeBytes: 4096},
			{Stack: 1, Function: 0, AllocObjects: 1, AllocBytes: 1 << 20},
		},
		Samples: []Sample{{Stack: 1, Size: 1 << 20, Count: 2}},
	}
	w := Weight(1<<20, 1<<20)
	want := []alloc.Site{
		{ID: 1, Function: "malloc", InUseBytes: int64(math.Round(w * (1 << 20))), InUseObjects: 2,
			AllocBytes: int64(math.Round(2 * w * (1 << 20))), AllocObjects: 3},
		{ID: 1, Function: "mmap", Kind: alloc.KindMmap, InUseBytes: 4096, InUseObjects: 1, AllocBytes: 8192, AllocObjects: 2},
	}
	if diff := cmp.Diff(want, o.Sites()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkSites(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	o := Observation{Functions: table, Now: 1 << 40}
	for i := range uint64(200_000) {
		o.Live = append(o.Live, Live{Addr: i * 64, Size: r.Uint64N(1000), Stack: alloc.StackID(r.IntN(5000)), Time: i})
	}
	for b.Loop() {
		o.Sites()
	}
}
