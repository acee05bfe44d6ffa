// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// A trap enters the kernel and comes back: never under 100 ns, and a probe that
// does not hit would show as a few.
func TestMeasureTrap(t *testing.T) {
	testutil.RequireBPF(t)
	if d := measureTrap(); d < 100*time.Nanosecond || d > time.Millisecond {
		t.Errorf("a trap takes %v", d)
	}
}
