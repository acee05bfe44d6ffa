// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// Intervals that are no multiple of a power of two, and shorter than most
// allocations, do not bias the estimates either.
func TestSampledShort(t *testing.T) {
	testutil.RequireBPF(t)
	bin := testutil.BuildC(t, []string{"testdata/targets/c/sampled.c"}, "-fno-builtin")
	for _, interval := range []int64{2, 15, 31, 100} {
		target := testutil.Start(t, bin)
		target.WaitLine("READY")
		s := startSession(t, target, tracer.Options{SampleBytes: interval})
		target.Send("go")
		target.WaitLine("DONE")
		snap := finish(t, s)
		requireComplete(t, snap)
		// 50,000 allocations of 9 bytes: at one sample in 100 bytes the
		// standard error is 1.5 %.
		_, objects := inSite(snap, "nine_bytes")
		if objects < 46500 || objects > 53500 {
			t.Errorf("at one sample in %d bytes, estimated %d objects, want 50000", interval, objects)
		}
	}
}
