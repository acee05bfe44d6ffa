// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// settleTimeout bounds the wait for a tool to be in, or out, of the target.
const settleTimeout = time.Minute

// runPairs measures a malloc and its free at two stack depths.
func runPairs(ctx context.Context, b *bench) error {
	path, err := b.buildDeep(ctx)
	if err != nil {
		return err
	}
	for _, depth := range []int{6, 60} {
		t, err := startTarget(ctx, path, strconv.Itoa(depth))
		if err != nil {
			return err
		}
		err = b.pairs(ctx, t, depth)
		t.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pairs(ctx context.Context, t *target, depth int) error {
	var costs []float64 // program time an allocation, by unfreed's own account
	each := func(r *result) {
		if n := r.Coverage.Allocations; n > 0 {
			costs = append(costs, float64(r.Cost.ProgramNS)/float64(n))
		}
	}
	tools := []tool{
		{name: "nothing"},
		emptyProbes("empty probes, placed", true),
		emptyProbes("empty probes, at the start", false),
		b.unfreedTool(each),
		memleak(),
		bpftrace(),
	}
	n := b.pick(200_000, 5_000)
	times, err := b.alternate(ctx, t, tools, func(t *target) (float64, error) {
		return median3(func() (float64, error) { return t.measure(n) })
	}, inProbes(t))
	if err != nil {
		return err
	}
	b.printf("malloc and free at %d frames: ns a pair, median of %d rounds [range]\n", depth, b.rounds)
	b.table(tools, times, "memleak (libbpf-tools)")
	if len(costs) > 0 {
		b.printf("  unfreed's programs take %.0f ns an allocation, its free included\n", median(costs))
	}
	return nil
}

// alternate gives each tool its turn on the target, round by round, and returns
// the measurements by tool. A tool that is missing is told of and left out.
func (b *bench) alternate(ctx context.Context, t *target, tools []tool, measure func(*target) (float64, error),
	settle func(context.Context, tool, bool) error) (map[string][]float64, error) {
	times := map[string][]float64{}
	missing := map[string]bool{}
	for range b.rounds {
		for _, tool := range tools {
			if missing[tool.name] {
				continue
			}
			ns, err := turn(ctx, t, tool, measure, settle)
			if errors.Is(err, errMissing) {
				b.printf("left out: %v\n", err)
				missing[tool.name] = true
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("measuring %s: %w", tool.name, err)
			}
			times[tool.name] = append(times[tool.name], ns)
		}
	}
	return times, nil
}

// turn attaches a tool, measures and detaches it.
func turn(ctx context.Context, t *target, tool tool, measure func(*target) (float64, error),
	settle func(context.Context, tool, bool) error) (ns float64, err error) {
	if tool.start == nil {
		return measure(t)
	}
	stop, err := tool.start(ctx, t)
	if err != nil {
		return 0, err
	}
	if err = settle(ctx, tool, true); err == nil {
		ns, err = measure(t)
	}
	if err := errors.Join(err, stop()); err != nil {
		return 0, err
	}
	return ns, settle(ctx, tool, false)
}

// inProbes returns a function that waits until pairs are slow, with a tool's
// probes in, or fast again, without. A trap costs a microsecond and more, a pair
// without one tens of nanoseconds.
func inProbes(t *target) func(context.Context, tool, bool) error {
	const few, slow = 200, 700 // pairs; ns
	const agree = 8            // measurements in a row, since others use this machine too
	return func(ctx context.Context, tool tool, in bool) error {
		seen := 0
		for end := time.Now().Add(settleTimeout); time.Now().Before(end); {
			ns, err := t.measure(few)
			if err != nil {
				return err
			}
			if seen++; in != (ns > slow) {
				seen = 0
			}
			if seen == agree {
				return nil
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return fmt.Errorf("waiting for %s to come or go: nothing within %v", tool.name, settleTimeout)
	}
}

// table prints medians, with each one's ratio to no tool and to a reference.
func (b *bench) table(tools []tool, times map[string][]float64, reference string) {
	base, ref := median(times[tools[0].name]), median(times[reference])
	for _, tool := range tools {
		x := times[tool.name]
		if len(x) == 0 {
			continue
		}
		m := median(x)
		b.printf("  %-28s %12.0f  [%.0f, %.0f]  %7.2fx", tool.name, m, slices.Min(x), slices.Max(x), m/base)
		if ref > 0 && tool.name != reference {
			b.printf("  %.2f of %s", m/ref, reference)
		}
		b.printf("\n")
	}
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}

// median3 measures three times, for the odd interruption.
func median3(measure func() (float64, error)) (float64, error) {
	var x []float64
	for range 3 {
		ns, err := measure()
		if err != nil {
			return 0, err
		}
		x = append(x, ns)
	}
	return median(x), nil
}
