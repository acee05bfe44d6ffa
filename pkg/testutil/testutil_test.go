// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// recorder is a testing.TB that records what a helper under test does to it.
type recorder struct {
	testing.TB
	fatal    string
	skipped  string
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Failed() bool        { return false }
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record runs f as a test of its own, cleanups included, and returns what
// became of it.
func record(t *testing.T, f func(tb testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r)
	}()
	<-done
	return r
}

func TestSkipIsAFailureWhenStrict(t *testing.T) {
	missing := func(tb testing.TB) { RequireTool(tb, "no-such-program") }
	t.Setenv("REQUIRE_BPF", "")
	if r := record(t, missing); !strings.Contains(r.skipped, `"no-such-program"`) || r.fatal != "" {
		t.Errorf("skipped %q, fatal %q; want a skip that names the program", r.skipped, r.fatal)
	}
	t.Setenv("REQUIRE_BPF", "1")
	if r := record(t, missing); !strings.Contains(r.fatal, `"no-such-program"`) || r.skipped != "" {
		t.Errorf("skipped %q, fatal %q; want a failure that names the program", r.skipped, r.fatal)
	}
}

func TestRequireBPF(t *testing.T) {
	RequireBPF(t)
	NoLeakedFDs(t)
	if err := uprobeWorks(); err != nil {
		t.Error(err)
	}
}

func TestBuildC(t *testing.T) {
	src := filepath.Join(t.TempDir(), "answer.c")
	if err := os.WriteFile(src, []byte("int main(void) { return ANSWER; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a := BuildC(t, []string{src}, "-DANSWER=42")
	if err := os.Remove(src); err != nil {
		t.Fatal(err)
	}
	b := BuildC(t, []string{src}, "-DANSWER=42") // the source is gone: from memory
	if a == b {
		t.Errorf("two builds share %q", a)
	}
	for _, path := range []string{a, b} {
		var exit *exec.ExitError
		if err := exec.Command(path).Run(); !errors.As(err, &exit) || exit.ExitCode() != 42 {
			t.Errorf("running %s: %v, want exit status 42", path, err)
		}
	}
	r := record(t, func(tb testing.TB) { BuildC(tb, []string{src}, "-DANSWER=43") })
	if !strings.Contains(r.fatal, "answer.c") {
		t.Errorf("building a missing file: %q", r.fatal)
	}
}

func TestTargetTalks(t *testing.T) {
	NoLeakedFDs(t)
	target := Start(t, "sh", "-c", `echo noise; echo READY $$; read x; echo got $x; echo bad >&2; exit 3`)
	if line, want := target.WaitLine("READY"), "READY "+strconv.Itoa(target.PID()); line != want {
		t.Errorf("got %q, want %q", line, want)
	}
	target.Send("go")
	if line := target.WaitLine("got"); line != "got go" {
		t.Errorf("got %q", line)
	}
	var exit *exec.ExitError
	if err := target.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("waiting: %v, want exit status 3", err)
	}
	if got := target.Errors(); got != "bad\n" {
		t.Errorf("stderr %q", got)
	}
	if got := target.Output(); !strings.HasPrefix(got, "noise\nREADY") {
		t.Errorf("stdout %q", got)
	}
}

func TestTargetEndsBeforeTheMarker(t *testing.T) {
	r := record(t, func(tb testing.TB) { Start(tb, "true").WaitLine("READY") })
	if !strings.Contains(r.fatal, "READY") {
		t.Errorf("fatal %q, want one that names the marker", r.fatal)
	}
}

func TestTargetIsKilledWithItsChildren(t *testing.T) {
	var target *Target
	var child int // a pidfd
	record(t, func(tb testing.TB) {
		target = Start(tb, "sh", "-c", `sleep 1000 & echo CHILD $!; wait`)
		pid, err := strconv.Atoi(strings.TrimPrefix(target.WaitLine("CHILD "), "CHILD "))
		if err != nil {
			t.Error(err)
			return
		}
		if child, err = unix.PidfdOpen(pid, 0); err != nil {
			t.Errorf("opening a pidfd of %d: %v", pid, err)
		}
	})
	if t.Failed() {
		return
	}
	defer unix.Close(child)
	if err := unix.Kill(target.PID(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("target %d: %v, want it gone", target.PID(), err)
	}
	poll := []unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, int(deadline.Milliseconds())); n != 1 {
		t.Errorf("waiting for the child to die: %v", err)
	}
}

func TestPythons(t *testing.T) {
	for _, p := range Pythons(t) {
		t.Run(p.String(), func(t *testing.T) {
			script := filepath.Join(t.TempDir(), "hello.py")
			if err := os.WriteFile(script, []byte("import sys;print('READY',sys.version.split()[0])\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			target := p.Start(t, p.File(t, script))
			if line := target.WaitLine("READY"); line != "READY "+p.Version {
				t.Errorf("got %q", line)
			}
		})
	}
}

func TestPythonDir(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"main.py": "import word; print(word.WORD)\n", "word.py": "WORD = 'READY'\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range Pythons(t) {
		t.Run(p.String(), func(t *testing.T) {
			p.Start(t, filepath.Join(p.Dir(t, dir), "main.py")).WaitLine("READY")
		})
	}
}

func TestBuildExtension(t *testing.T) {
	for _, p := range Pythons(t) {
		t.Run(p.String(), func(t *testing.T) {
			cmd := p.Command("-c", "import leaky; leaky.call(lambda: print('CALLED'), 1)")
			cmd.Env = append(cmd.Env, "PYTHONPATH="+BuildExtension(t, p))
			target := StartCmd(t, cmd)
			target.WaitLine("CALLED")
			if err := target.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoLeakedFDs(t *testing.T) {
	var leak *os.File
	r := record(t, func(tb testing.TB) {
		NoLeakedFDs(tb)
		leak, _ = os.Open("/dev/null")
	})
	leak.Close()
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "/dev/null") {
		t.Errorf("errors %q, want one that names /dev/null", r.errors)
	}
}
