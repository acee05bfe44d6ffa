// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// Weight returns how many allocations of a size one sampled allocation stands
// for, when a Poisson process over the bytes allocated picks one every rate
// bytes on average. It is 1 where rate is at most 1.
//
// The process is realised by a countdown a thread in bytes, drawn from an
// exponential distribution of mean rate; the allocation that takes it to zero
// is sampled, and the countdown is drawn anew. The distribution has no memory,
// so an allocation of size s is sampled with probability
//
//	p = 1 - exp(-s/rate)
//
// whatever came before, and 1/p allocations or s/p bytes are unbiased
// estimates. Go's heap profiler scales likewise (runtime/pprof, protomem.go,
// scaleHeapSample), though by the mean size of a stack's allocations and not
// each by its own, which biases stacks that allocate several sizes.
//
// An allocation of 0 bytes counts as one byte here, as it does in the
// countdown: else it could never be seen.
func Weight(size uint64, rate int64) float64 {
	if rate <= 1 {
		return 1
	}
	// Expm1 keeps the digits that 1 - exp(-x) loses for small x.
	return -1 / math.Expm1(-float64(max(size, 1))/float64(rate))
}

// quantity is an amount of memory: exact and estimated parts apart, so that
// exact ones never pass through a float.
type quantity struct {
	bytes, objects       int64
	estBytes, estObjects float64
}

// add enters n allocations of a size, sampled at a rate.
func (q *quantity) add(size, n uint64, rate int64) {
	if rate <= 1 {
		q.bytes = add(q.bytes, clamp(mul(size, n)))
		q.objects = add(q.objects, clamp(n))
		return
	}
	w := Weight(size, rate) * float64(n)
	q.estBytes += w * float64(size)
	q.estObjects += w
}

// round returns the whole amount.
func (q *quantity) round() (bytes, objects int64) {
	return add(q.bytes, roundInt(q.estBytes)), add(q.objects, roundInt(q.estObjects))
}

// roundInt rounds to the nearest integer that an int64 holds.
func roundInt(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(f))
}

// mul is a * b, saturated.
func mul(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}
