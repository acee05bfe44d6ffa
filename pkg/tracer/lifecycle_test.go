// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// inSite sums what is outstanding in stacks through a function.
func inSite(snap *alloc.Snapshot, function string) (bytes, objects int64) {
	for _, s := range snap.Sites {
		for _, f := range s.Stack {
			if f.Function == function {
				bytes += s.InUseBytes
				objects += s.InUseObjects
				break
			}
		}
	}
	return bytes, objects
}

// wait waits for the session's end, which must come by itself.
func wait(t *testing.T, s *tracer.Session) tracer.End {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	end := s.Wait(ctx)
	if end.Cause != nil {
		t.Fatal("the session did not end")
	}
	return end
}

// A target that dies leaves the profile of its last state.
func TestTargetDies(t *testing.T) {
	testutil.RequireBPF(t)
	tests := []struct {
		name string
		die  func(*testutil.Target)
		want string
	}{
		{"crash", func(target *testutil.Target) { target.Send("crash") }, "SIGSEGV"},
		{"kill -9", func(target *testutil.Target) { target.Signal(os.Kill) }, "SIGKILL"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			target := testutil.Start(t, testutil.BuildC(t, source("crash.c"), "-fno-builtin"))
			target.WaitLine("READY")
			s := startSession(t, target, tracer.Options{})
			target.Send("go")
			target.WaitLine("ALLOCATED")
			test.die(target)
			end := wait(t, s)
			if !end.Exited {
				t.Errorf("end = %v, want an exit", end)
			}
			if end.StatusKnown && !strings.Contains(end.String(), test.want) {
				t.Errorf("end = %q, want it to name %s", end, test.want)
			}
			snap, err := s.Finish(end, 0)
			if err != nil {
				t.Fatal(err)
			}
			requireComplete(t, snap)
			if bytes, objects := inSite(snap, "before_crash"); bytes != 10090 || objects != 10 {
				t.Errorf("%d bytes in %d objects outstanding, want 10090 in 10", bytes, objects)
			}
		})
	}
}

// A target that replaces its program closes the books: the addresses of the new
// one mean something else. In a container the target has a number of its own.
func TestTargetExecs(t *testing.T) {
	testutil.RequireBPF(t)
	for name, flags := range map[string]uintptr{"host": 0, "container": syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(testutil.BuildC(t, source("exec.c"), "-fno-builtin"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			execs(t, testutil.StartCmd(t, cmd))
		})
	}
}

func execs(t *testing.T, target *testutil.Target) {
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{})
	target.Send("go")
	target.WaitLine("ALLOCATED")
	target.Send("exec")
	end := wait(t, s)
	if !end.Exec {
		t.Fatalf("end = %v, want an exec", end)
	}
	target.WaitLine("AGAIN")
	target.Send("go")
	target.WaitLine("DONE")
	snap, err := s.Finish(end, 0)
	if err != nil {
		t.Fatal(err)
	}
	requireComplete(t, snap)
	if bytes, objects := inSite(snap, "first_life"); bytes != 10090 || objects != 10 {
		t.Errorf("%d bytes in %d objects outstanding, want 10090 in 10", bytes, objects)
	}
	if _, objects := inSite(snap, "second_life"); objects != 0 {
		t.Errorf("%d objects of the new program were counted", objects)
	}
}

// Detaching and attaching again leaves the target as it was, and leaks nothing
// here.
func TestAttachAgain(t *testing.T) {
	testutil.RequireBPF(t)
	testutil.NoLeakedFDs(t)
	target := testutil.Start(t, testutil.BuildC(t, source("crash.c"), "-fno-builtin"))
	target.WaitLine("READY")
	for range 3 {
		s := startSession(t, target, tracer.Options{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := startSession(t, target, tracer.Options{})
	target.Send("go")
	target.WaitLine("ALLOCATED")
	snap := finish(t, s)
	if _, objects := inSite(snap, "before_crash"); objects != 10 {
		t.Errorf("%d objects, want 10", objects)
	}
}

// A full table must show: the result is incomplete and says which table.
func TestFullTables(t *testing.T) {
	testutil.RequireBPF(t)
	for name, o := range map[string]tracer.Options{
		"live_full":  {MaxLive: 20},
		"sites_full": {MaxSites: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bin := testutil.BuildC(t, []string{"testdata/targets/c/randops.c", "testdata/targets/c/randops_sites.c"}, "-fno-builtin")
			target := testutil.Start(t, bin, "1", "5000", "1")
			target.WaitLine("READY")
			s := startSession(t, target, o)
			target.Send("go")
			target.WaitLine("DONE")
			snap := finish(t, s)
			if !snap.Coverage.Incomplete() {
				t.Fatal("nothing was lost, though the table is too small")
			}
			var names []string
			for _, c := range snap.Coverage.EventsLost {
				names = append(names, c.Name)
			}
			if !strings.Contains(strings.Join(names, " "), name) {
				t.Errorf("lost: %v, want %s among them", names, name)
			}
		})
	}
}

// Sampled mode estimates without bias: over many allocations of several sizes
// the estimates come near the truth.
func TestSampled(t *testing.T) {
	testutil.RequireBPF(t)
	bin := testutil.BuildC(t, []string{"testdata/targets/c/randops.c", "testdata/targets/c/randops_sites.c"}, "-fno-builtin")
	target := testutil.Start(t, bin, "7", "400000", "2")
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{SampleBytes: 8192})
	target.Send("go")
	want := said(t, target.WaitLine("SITES"))
	target.WaitLine("DONE")
	snap := finish(t, s)
	requireComplete(t, snap)
	var wantBytes, wantAllocs, gotBytes, gotAllocs float64
	for _, w := range want {
		if w.Function == "mmap" || w.Function == "mremap" {
			continue
		}
		wantBytes += float64(w.AllocBytes)
		wantAllocs += float64(w.Allocs)
	}
	for _, x := range snap.Sites {
		if x.Kind == alloc.KindHost {
			gotBytes += float64(x.AllocBytes)
			gotAllocs += float64(x.AllocObjects)
		}
	}
	// 300,000 allocations of 2 KB on average at one sample in 8 KiB: the
	// standard error of the bytes is under 1 %, that of the count (mostly small
	// allocations) about 2 %; the run is seeded, the sampling is not.
	if r := gotBytes / wantBytes; r < 0.95 || r > 1.05 {
		t.Errorf("estimated %.0f bytes, want %.0f: ratio %.3f", gotBytes, wantBytes, r)
	}
	if r := gotAllocs / wantAllocs; r < 0.85 || r > 1.15 {
		t.Errorf("estimated %.0f allocations, want %.0f: ratio %.3f", gotAllocs, wantAllocs, r)
	}
}

// A target that becomes another program while attach prepares for the first must
// not be traced by what was learned of that.
func TestExecWhilePreparing(t *testing.T) {
	testutil.RequireBPF(t)
	target := testutil.Start(t, testutil.BuildC(t, source("exec.c"), "-fno-builtin"))
	target.WaitLine("READY")
	target.Send("go")
	target.WaitLine("ALLOCATED")
	p, err := proc.Open(target.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var once sync.Once
	_, err = tracer.Start(context.Background(), p, tracer.Options{Progress: func(step tracer.Progress) {
		if step.Step == "loading programs" {
			once.Do(func() {
				target.Send("exec")
				target.WaitLine("AGAIN")
			})
		}
	}})
	if !errors.Is(err, tracer.ErrReplaced) && !errors.Is(err, proc.ErrExited) {
		t.Fatalf("err = %v, want ErrReplaced", err)
	}
}
