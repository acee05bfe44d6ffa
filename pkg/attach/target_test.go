// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// target is a running testdata/calls.c.
type target struct {
	*testutil.Target
	proc *proc.Process
}

// callsSource is the source of the targets, from the repository's root.
const callsSource = "pkg/attach/testdata/calls.c"

// startCalls starts testdata/calls.c with libraries preloaded.
func startCalls(tb testing.TB, preload string) *target {
	tb.Helper()
	exe := testutil.BuildC(tb, []string{callsSource}, "-ldl")
	cmd := exec.Command(exe)
	if preload != "" {
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
	}
	return watch(tb, testutil.StartCmd(tb, cmd))
}

// watch waits until the target is ready and opens it.
func watch(tb testing.TB, t *testutil.Target) *target {
	tb.Helper()
	t.WaitLine("ready")
	p, err := proc.Open(t.PID())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return &target{t, p}
}

// plan plans probes for what the target has mapped now.
func (t *target) plan(tb testing.TB, p *Planner) ([]Probe, []Skip) {
	tb.Helper()
	maps, err := t.proc.Maps()
	if err != nil {
		tb.Fatal(err)
	}
	probes, skips, err := p.Plan(maps)
	if err != nil {
		tb.Fatal(err)
	}
	return probes, skips
}

func (t *target) planner(tb testing.TB) *Planner {
	tb.Helper()
	p := NewPlanner(t.proc.OpenMapping, alloc.HostFunctions())
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// attached attaches the counting programs to all that is planned.
func (t *target) attached(tb testing.TB, c *counting, m Mode, probes []Probe) *Attacher {
	tb.Helper()
	a, err := NewAttacher(t.PID(), c.Programs, m)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := a.Close(); err != nil {
			tb.Error(err)
		}
	})
	if _, err := a.Add(probes); err != nil {
		tb.Fatal(err)
	}
	if a.Mode() != m {
		tb.Errorf("mode is %v, want %v", a.Mode(), m)
	}
	return a
}

func (t *target) order(format string, args ...any) {
	t.Send(fmt.Sprintf(format, args...))
	t.WaitLine("done")
}
