// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestFileGone attaches to a library that is no more under its name: deleted,
// or replaced by another.
func TestFileGone(t *testing.T) {
	jemalloc := library(t, "libjemalloc.so.2")
	round := allocators()["libjemalloc.so.2"]
	for name, change := range map[string]func(path string) error{
		"deleted": os.Remove,
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", []byte("not a library"), 0o755); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		forModes(t, name, fastModes(t), func(t *testing.T, mode Mode) {
			path := filepath.Join(t.TempDir(), "liballocator.so")
			copyFile(t, jemalloc, path)
			tg := startCalls(t, path)
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			testHits(t, tg, mode, round)
		})
	}
}

// TestOtherRoot attaches to a target whose files this process cannot name: they
// stand in a file system of another mount namespace, and in another root there.
func TestOtherRoot(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireTool(t, "unshare", "chroot", "mount")
	round := roundOf(false, false, false)
	round.unseen = 0
	forModes(t, "musl", fastModes(t), func(t *testing.T, mode Mode) {
		exe := testutil.BuildWith(t, "musl-gcc", []string{callsSource}, "-static", "-DSTATIC")
		dir := t.TempDir()
		tg := testutil.StartCmd(t, exec.Command("unshare", "--mount", "sh", "-ec",
			`mount -t tmpfs none "$1"; mkdir "$1/root"; cp "$0" "$1/root/calls"; exec chroot "$1/root" /calls`, exe, dir))
		w := watch(t, tg)
		if _, err := os.Stat(filepath.Join(dir, "root")); err == nil {
			t.Fatal("the target's root can be seen from here")
		}
		testHits(t, w, mode, round)
	})
}

// TestLateLibrary adds the probes of a library that was loaded meanwhile.
func TestLateLibrary(t *testing.T) {
	late := buildLibrary(t, `#include <stddef.h>
		static char memory[4096]; volatile int used;
		void *mallocx(size_t n, int flags) { used += flags; return memory + n % 64 * 16; }
		void dallocx(void *p, int flags) { (void)p; used -= flags; }`)
	forModes(t, "", modes, func(t *testing.T, mode Mode) {
		testutil.NoLeakedFDs(t)
		tg := startCalls(t, "")
		c := newCounting(t, mode)
		c.watchSize(1012)
		planner := tg.planner(t)
		probes, _ := tg.plan(t, planner)
		a := tg.attached(t, c, mode, probes)

		tg.order("dlopen %s", late)
		tg.order("late 3")
		if hits := c.hits(1012); len(hits) > 0 {
			t.Errorf("hits %v before the library's functions are probed", hits)
		}
		probes, _ = tg.plan(t, planner)
		for _, p := range probes {
			if p.File.Path != late {
				t.Errorf("probe %v is of an earlier library", &p)
			}
		}
		c.learn(probes)
		if _, err := a.Add(probes); err != nil {
			t.Fatal(err)
		}
		before := c.total(isFree)
		tg.order("late 5")
		if hits := c.hits(1012); len(hits) != 1 || hits["mallocx"] != 5 {
			t.Errorf("hits %v, want 5 of mallocx", hits)
		}
		if frees := c.total(isFree); frees.Known-before.Known != 5 || frees.Unknown != before.Unknown {
			t.Errorf("frees %+v, then %+v, want 5 more", before, frees)
		}
	})
}

// TestTargetGone attaches to a target that ends before, or ends meanwhile.
func TestTargetGone(t *testing.T) {
	forModes(t, "", modes, func(t *testing.T, mode Mode) {
		testutil.NoLeakedFDs(t)
		c := newCounting(t, mode)
		tg := startCalls(t, "")
		probes, _ := tg.plan(t, tg.planner(t))
		a := tg.attached(t, c, mode, probes)
		tg.order("run 3")
		tg.CloseInput()
		if err := tg.Wait(); err != nil {
			t.Errorf("the target ended with %v", err)
		}
		if _, err := a.Add(probes); !errors.Is(err, proc.ErrExited) {
			t.Errorf("attaching to a process that has ended: %v, want ErrExited", err)
		}
		for range 2 {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := a.Add(probes); !errors.Is(err, ErrClosed) {
			t.Errorf("attaching with a closed Attacher: %v, want ErrClosed", err)
		}
	})
}

// attachHelper is set in the environment of a test binary that is to attach to
// the process it names and wait to be killed.
const attachHelper = "UNFREED_TEST_ATTACH"

func TestMain(m *testing.M) {
	if mode := os.Getenv(attachHelper); mode != "" {
		// The helper is a test like any other, and ends by SIGKILL.
		os.Args = append(os.Args[:1], "-test.run=^TestAttachAndWait$")
	}
	os.Exit(m.Run())
}

// TestAttachAndWait is the part of TestKilled that is killed.
func TestAttachAndWait(t *testing.T) {
	var pid int
	var mode Mode
	if n, _ := fmt.Sscan(os.Getenv(attachHelper), &pid, &mode); n != 2 {
		return // it is run by TestKilled
	}
	p, err := proc.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	tg := &target{proc: p}
	c := newCounting(t, mode)
	probes, _ := tg.plan(t, tg.planner(t))
	a, err := NewAttacher(pid, c.Programs, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Add(probes); err != nil {
		t.Fatal(err)
	}
	fmt.Println("attached")
	io.Copy(io.Discard, os.Stdin)
}

// TestKilled kills the process that has attached: the target's code is then as
// it was, and it runs on.
func TestKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	forModes(t, "", modes, func(t *testing.T, mode Mode) {
		tg := startCalls(t, "")
		probes, _ := tg.plan(t, tg.planner(t))
		before := tg.probed(t, probes)

		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", attachHelper, tg.PID(), mode))
		helper := testutil.StartCmd(t, cmd)
		helper.WaitLine("attached")
		tg.order("run 3")
		if during := tg.probed(t, probes); during == before {
			t.Error("the probes change no instruction")
		}
		helper.Signal(syscall.SIGKILL)
		var exit *exec.ExitError
		if err := helper.Wait(); !errors.As(err, &exit) || exit.Success() {
			t.Errorf("the killed process ended with %v", err)
		}
		if after := tg.probed(t, probes); after != before {
			t.Errorf("instructions were\n%s, are\n%s", before, after)
		}
		tg.order("run 3")
	})
}

// probed returns the first bytes of each probed instruction in the target's
// memory.
func (t *target) probed(tb testing.TB, probes []Probe) string {
	tb.Helper()
	maps, err := t.proc.Maps()
	if err != nil {
		tb.Fatal(err)
	}
	var s strings.Builder
	for _, p := range probes {
		for _, m := range maps {
			if m.Path != p.File.Path || p.Offset < m.Offset || p.Offset-m.Offset >= m.End-m.Start {
				continue
			}
			var code [2]byte
			if _, err := t.proc.ReadAt(code[:], int64(m.Start+p.Offset-m.Offset)); err != nil {
				tb.Fatal(err)
			}
			fmt.Fprintf(&s, "%s % x\n", p.Function.Name, code)
		}
	}
	return s.String()
}
