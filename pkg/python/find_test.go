// SPDX-License-Identifier: Apache-2.0

package python

import (
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestFind(t *testing.T) {
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, "-c", "print('READY', flush=True); input()")
			target.WaitLine("READY")
			r, err := find(t, openProcess(t, target.PID()))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Version.String(); got != py.Version {
				t.Errorf("version = %s, want %s", got, py.Version)
			}
			t.Logf("%s eval %x lib %x", r.Path, r.EvalRanges, r.LibRange)
		})
	}
}
