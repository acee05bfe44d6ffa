// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"
	"time"
)

// runStart measures the time from the start of unfreed to its first probe in a
// torch process, without and with the cache of unwind tables.
func runStart(ctx context.Context, b *bench) error {
	python, err := b.makeVenv(ctx)
	if err != nil {
		return err
	}
	t, err := startTarget(ctx, python, "internal/bench/infer.py")
	if err != nil {
		return err
	}
	defer t.close()
	for _, cold := range []bool{true, false} {
		var probed, total []float64
		for range b.rounds {
			if cold {
				if err := os.RemoveAll(b.cacheDir()); err != nil {
					return err
				}
			}
			began := time.Now()
			stop, err := b.startUnfreed(ctx, t, func(r *result) {
				probed = append(probed, float64(r.Cost.StartUpNS)/1e9)
			})
			if err != nil {
				return err
			}
			total = append(total, time.Since(began).Seconds())
			if err := stop(); err != nil {
				return err
			}
		}
		name := "cached"
		if cold {
			name = "cold"
		}
		b.printf("  %-7s first probe after %.2f s [%.2f, %.2f], all in after %.2f s; %d runs\n",
			name, median(probed), slices.Min(probed), slices.Max(probed), median(total), b.rounds)
	}
	return nil
}
