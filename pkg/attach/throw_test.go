// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// startThrow starts testdata/throw.cc under an allocator with operators of its
// own.
func startThrow(t *testing.T) *target {
	t.Helper()
	exe := testutil.BuildC(t, []string{"pkg/attach/testdata/throw.cc"})
	return startExe(t, exe, "libjemalloc.so.2")
}

// failing is the size above which the tests take it that operator new throws.
const failing = 1 << 40

// TestThrow lets an allocator's operator new throw while it is probed.
func TestThrow(t *testing.T) {
	forModes(t, "", modes, func(t *testing.T, mode Mode) {
		tg := startThrow(t)
		c := newCounting(t, mode)
		c.throw = failing
		c.watchSize(1010)
		probes, _ := tg.plan(t, tg.planner(t))
		a, err := NewAttacher(tg.PID(), c.Programs, mode)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		c.learn(probes)
		skips, err := a.Add(probes)
		if err != nil {
			t.Fatal(err)
		}
		tg.Send("new 1010")
		tg.WaitLine("allocated")
		tg.Send("new 4611686018427387904")
		tg.WaitLine("caught bad_alloc")

		isNew := func(s Skip) bool { return s.Function == "_Znwm" && s.Cause == SkipThrows && s.Cause.Missed() }
		session := mode == ModeSession
		if slices.ContainsFunc(skips, isNew) == session {
			t.Errorf("mode %v skips %v", mode, skips)
		}
		if got := c.hits(1010)["_Znwm"]; got != 1 && session || got != 0 && !session {
			t.Errorf("operator new has %d hits", got)
		}
	})
}

// TestThrowProbed shows what alloc.Function.Throws guards against: where the
// return is probed of a call that throws, nothing catches the exception. Should
// it fail with a newer kernel or libgcc, the guard can go.
func TestThrowProbed(t *testing.T) {
	requireMode(t, ModeSession)
	tg := startThrow(t)
	c := newCounting(t, ModeSession)
	probes, _ := tg.plan(t, tg.planner(t))
	tg.attached(t, c, ModeSession, probes)
	tg.Send("new 4611686018427387904")
	var exit *exec.ExitError
	if err := tg.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
		t.Errorf("the target ended with %v, want SIGABRT by std::terminate", err)
	}
}
