// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// startCalls starts testdata/calls.c with a library preloaded, if one is named. A
// library without a folder is one of this machine's, and a copy is taken, as of
// libc: probes belong to files, and whoever else probes those of the system, for
// all processes, would be met here.
func startCalls(tb testing.TB, preload string) *target {
	tb.Helper()
	return startExe(tb, testutil.BuildC(tb, []string{callsSource}, "-ldl"), preload)
}

func startExe(tb testing.TB, exe, preload string) *target {
	tb.Helper()
	dir := tb.TempDir()
	copyFile(tb, library(tb, "libc.so.6"), filepath.Join(dir, "libc.so.6"))
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	if preload != "" && filepath.Base(preload) == preload {
		name := filepath.Join(dir, preload)
		copyFile(tb, library(tb, preload), name)
		preload = name
	}
	if preload != "" {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+preload)
	}
	return watch(tb, testutil.StartCmd(tb, cmd))
}

// library returns the path of a library of this machine.
func library(tb testing.TB, name string) string {
	tb.Helper()
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	testutil.Skipf(tb, "the library %s is missing (install it with .ci/deps.sh)", name)
	return ""
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		tb.Fatal(err)
	}
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
	c.learn(probes)
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
