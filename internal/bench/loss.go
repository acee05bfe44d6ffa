// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// runLoss has two threads allocate as fast as they can under unfreed, and counts
// what it loses.
func runLoss(ctx context.Context, b *bench) error {
	path, err := b.buildDeep(ctx)
	if err != nil {
		return err
	}
	t, err := startTarget(ctx, path, "20", "2")
	if err != nil {
		return err
	}
	defer t.close()
	if b.quick {
		b.loss = 2 * time.Second
	}
	var got *result
	stop, err := b.startUnfreed(ctx, t, func(r *result) { got = r })
	if err != nil {
		return err
	}
	for end := time.Now().Add(b.loss); time.Now().Before(end); {
		if _, err := t.measure(50_000); err != nil {
			return err
		}
	}
	if err := stop(); err != nil {
		return err
	}
	var lost int64
	for _, c := range got.Coverage.EventsLost {
		lost += c.Count
		b.printf("  lost %d: %s\n", c.Count, c.Name)
	}
	n := got.Coverage.Allocations
	b.printf("  two threads for %v: %d allocations (%.0f a second), %d events lost, %d stacks complete\n",
		b.loss, n, float64(n)/b.loss.Seconds(), lost, got.Coverage.StacksComplete)
	return nil
}
