// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bySite runs a target to its DONE and returns what it says of its sites, by
// name, added up over functions.
func bySite(t *testing.T, target *Target) map[string]Site {
	t.Helper()
	target.WaitLine("READY")
	target.Send("go")
	sites := map[string]Site{}
	for _, s := range target.Sites() {
		sum := sites[s.Site]
		sum.Site = s.Site
		sum.Objects += s.Objects
		sum.Bytes += s.Bytes
		sum.Allocs += s.Allocs
		sum.AllocBytes += s.AllocBytes
		sum.Failed += s.Failed
		sites[s.Site] = sum
	}
	return sites
}

// finish ends a target and checks that it ends well.
func finish(t *testing.T, target *Target) {
	t.Helper()
	target.WaitLine("DONE")
	target.CloseInput()
	if err := target.Wait(); err != nil {
		t.Errorf("the target ended badly: %v", err)
	}
}

func preload(path, library string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library)
	return cmd
}

func TestAllfuncs(t *testing.T) {
	const threads, rounds = 4, 3
	path := BuildTarget(t, "allfuncs")
	commands := map[string]func() *exec.Cmd{
		"glibc":     func() *exec.Cmd { return exec.Command(path, "mid", strconv.Itoa(rounds)) },
		"wrapped":   func() *exec.Cmd { return preload(path, BuildTarget(t, "wrap"), "mid", strconv.Itoa(rounds)) },
		"bumpalloc": func() *exec.Cmd { return preload(path, BuildTarget(t, "bumpalloc"), "mid", strconv.Itoa(rounds)) },
	}
	for name, command := range commands {
		t.Run(name, func(t *testing.T) {
			target := StartCmd(t, command())
			sites := bySite(t, target)
			totals := target.Totals()
			const each = threads * rounds
			for site, want := range map[string]Site{
				"malloc_zero":            {Objects: each, Allocs: 2 * each},
				"realloc_failing":        {Failed: each + threads},
				"posix_memalign_failing": {Failed: 2 * each},
				"map_failing":            {Failed: each},
				"map_file":               {},
				"reuse_b":                {Objects: each, Allocs: 11 * each},
			} {
				got := sites[site]
				if got.Objects != want.Objects || got.Allocs != want.Allocs || got.Failed != want.Failed {
					t.Errorf("%s: got %+v, want %+v", site, got, want)
				}
			}
			// Half of 64 freed, 6 resized, 3 resized to nothing, by each thread.
			if want := int64(threads * (32 + 6 + 3)); totals.FreesUnmatched != want {
				t.Errorf("%d unmatched frees, want %d", totals.FreesUnmatched, want)
			}
			finish(t, target)
		})
	}
	t.Run("start", func(t *testing.T) {
		target := Start(t, path, "start", "1")
		if got := bySite(t, target)["thread_late"]; got.Objects != threads || got.Allocs != 2*threads {
			t.Errorf("thread_late: %+v", got)
		}
		if got := target.Totals(); got.FreesUnmatched != 0 || got.ThreadExits != 2*threads {
			t.Errorf("totals: %+v", got)
		}
		finish(t, target)
	})
}

func TestAllfuncsSizesAreDistinct(t *testing.T) {
	target := Start(t, BuildTarget(t, "allfuncs"), "start", "1")
	sizes := map[string]string{}
	for _, s := range bySite(t, target) {
		if s.AllocBytes == 0 || s.Site == "map_over" || s.Site == "reuse_b" {
			continue // sizes of their own, which are not the site's
		}
		size := strconv.FormatInt(s.AllocBytes/s.Allocs, 10)
		if other := sizes[size]; other != "" {
			t.Errorf("%s and %s both allocate %s bytes", other, s.Site, size)
		}
		sizes[size] = s.Site
	}
}

func TestRandops(t *testing.T) {
	path := BuildTarget(t, "randops")
	var first map[string]Site
	for range 2 {
		target := Start(t, path, "42", "20000", "1")
		sites := bySite(t, target)
		finish(t, target)
		if len(sites) != 21 {
			t.Errorf("%d sites, want all 21", len(sites))
		}
		if first == nil {
			first = sites
		} else if diff := cmp.Diff(first, sites); diff != "" {
			t.Errorf("two runs of one seed and one thread differ:\n%s", diff)
		}
	}
}

// A double free or a free of the wrong address would be a fault of the target's
// model, and ASan's to find.
func TestRandopsUnderASan(t *testing.T) {
	path := BuildTarget(t, "randops", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	target := Start(t, path, "7", "50000", "2")
	bySite(t, target)
	finish(t, target)
}

func TestSmallTargets(t *testing.T) {
	lib := BuildTarget(t, "latelib")
	bump := BuildTarget(t, "bumpalloc")
	for name, tt := range map[string]struct {
		cmd  *exec.Cmd
		site string
		want Site
	}{
		"altstack":    {exec.Command(BuildTarget(t, "altstack")), "on_signal", Site{Objects: 100, Bytes: 13100, Allocs: 100, AllocBytes: 13100}},
		"longjmp":     {preload(BuildTarget(t, "longjmp"), bump), "in_handler", Site{Objects: 400, Bytes: 308400, Allocs: 400, AllocBytes: 308400}},
		"vforker":     {exec.Command(BuildTarget(t, "vforker")), "in_vfork_child", Site{Objects: 50, Bytes: 25700, Allocs: 50, AllocBytes: 25700}},
		"dlopen_late": {exec.Command(BuildTarget(t, "dlopen_late"), lib, "10"), "late_49", Site{Objects: 10, Bytes: 13920, Allocs: 20, AllocBytes: 27840}},
		"newdelete":   {exec.Command(BuildTarget(t, "newdelete")), "ledger::Book::entry", Site{Objects: 50, Bytes: 67400, Allocs: 100, AllocBytes: 134800}},
		"simple":      {exec.Command(BuildTarget(t, "simple")), "only_site", Site{Objects: 50, Bytes: 50450, Allocs: 100, AllocBytes: 100900}},
		"static":      {exec.Command(BuildTarget(t, "simple", "-static")), "only_site", Site{Objects: 50, Bytes: 50450, Allocs: 100, AllocBytes: 100900}},
	} {
		t.Run(name, func(t *testing.T) {
			target := StartCmd(t, tt.cmd)
			got := bySite(t, target)[tt.site]
			tt.want.Site = tt.site
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			finish(t, target)
		})
	}
}

func TestForeignTargets(t *testing.T) {
	t.Run("musl", func(t *testing.T) {
		RequireTool(t, "musl-gcc")
		target := Start(t, BuildTargetWith(t, "musl-gcc", "allfuncs"), "mid", "1")
		bySite(t, target)
		finish(t, target)
	})
	t.Run("32 bit", func(t *testing.T) {
		if err := exec.Command("gcc", "-m32", "-E", "-include", "stdio.h", "-x", "c", "/dev/null").Run(); err != nil {
			Skipf(t, "gcc for 32 bits is missing (Debian: gcc-multilib): %v", err)
		}
		target := Start(t, BuildTarget(t, "simple", "-m32"))
		bySite(t, target)
		finish(t, target)
	})
	t.Run("no libc", func(t *testing.T) {
		target := Start(t, BuildTarget(t, "nolibc"))
		target.WaitLine("READY")
		target.CloseInput()
		if err := target.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestDeep(t *testing.T) {
	for _, flag := range []string{"-fomit-frame-pointer", "-fno-omit-frame-pointer"} {
		target := Start(t, BuildTarget(t, "deep", flag), "60", "2")
		target.WaitLine("READY")
		for range 2 {
			target.Send("1000")
			ns, err := strconv.ParseFloat(strings.TrimPrefix(target.WaitLine("PAIR "), "PAIR "), 64)
			if err != nil || ns <= 0 {
				t.Errorf("%s: a pair takes %v ns: %v", flag, ns, err)
			}
		}
	}
}

func TestTargetsThatEnd(t *testing.T) {
	t.Run("exec", func(t *testing.T) {
		target := Start(t, BuildTarget(t, "exec"))
		target.WaitLine("READY")
		target.Send("go")
		target.WaitLine("ALLOCATED")
		target.Send("go")
		if got, want := target.WaitLine("AGAIN"), "AGAIN "+strconv.Itoa(target.PID()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		target.Send("go")
		finish(t, target)
	})
	t.Run("crash", func(t *testing.T) {
		target := Start(t, BuildTarget(t, "crash"))
		target.WaitLine("READY")
		target.Send("go")
		target.WaitLine("ALLOCATED")
		target.Send("go")
		var exit *exec.ExitError
		err := target.Wait()
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV {
			t.Errorf("ended by %v, want SIGSEGV", err)
		}
	})
}
