// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// command is the program under test, running.
type command struct {
	*exec.Cmd
	t      *testing.T
	stdout bytes.Buffer

	mu     sync.Mutex
	stderr bytes.Buffer
	wake   chan struct{}
}

func (c *command) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.stderr.Write(b)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return n, err
}

func (c *command) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// start runs this test's own binary as unfreed.
func start(t *testing.T, dir string, args ...string) *command {
	t.Helper()
	c := prepare(t, dir, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// prepare makes the command ready to be started.
func prepare(t *testing.T, dir string, args ...string) *command {
	t.Helper()
	self := filepath.Join(t.TempDir(), "unfreed")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, self); err != nil {
		t.Fatal(err)
	}
	c := &command{Cmd: exec.Command(self, args...), t: t, wake: make(chan struct{}, 1)}
	c.Dir = dir
	c.Stdout = &c.stdout
	c.Cmd.Stderr = c
	t.Cleanup(func() {
		if c.Process != nil {
			_ = c.Process.Kill()
		}
	})
	return c
}

// waitFor waits until stderr has a text.
func (c *command) waitFor(text string) {
	c.t.Helper()
	deadline := time.After(60 * time.Second)
	for !strings.Contains(c.said(), text) {
		select {
		case <-c.wake:
		case <-deadline:
			c.t.Fatalf("stderr has no %q: %q", text, c.said())
		}
	}
}

// exitCode waits for the end.
func (c *command) exitCode() int {
	c.t.Helper()
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

func crashTarget(t *testing.T) *testutil.Target {
	t.Helper()
	target := testutil.Start(t, testutil.BuildC(t, []string{"testdata/targets/c/crash.c"}, "-fno-builtin"))
	target.WaitLine("READY")
	return target
}

func inUse(t *testing.T, path, function string) int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, s := range p.Sample {
		if through(s, function) {
			sum += s.Value[3]
		}
	}
	return sum
}

// Whatever asks it to end, the profile is written and the target goes on.
func TestAttachEnds(t *testing.T) {
	testutil.RequireBPF(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			target := crashTarget(t)
			c := start(t, dir, "attach", itoa(target.PID()), "-o", "out.pb.gz")
			c.waitFor("tracing")
			target.Send("go")
			target.WaitLine("ALLOCATED")
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := c.exitCode(); code != 0 {
				t.Fatalf("exit code %d: %s", code, c.said())
			}
			if n := inUse(t, filepath.Join(dir, "out.pb.gz"), "before_crash"); n != 10090 {
				t.Errorf("%d bytes in the profile, want 10090", n)
			}
			for _, want := range []string{"before_crash", "interrupted", "9.9 KiB", "before attach", "unfreed web out.pb.gz"} {
				if !strings.Contains(c.stdout.String(), want) {
					t.Errorf("report has no %q:\n%s", want, &c.stdout)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			target.Send("on with it")
			if err := target.Wait(); err == nil {
				t.Error("the target should have crashed, as it was made to")
			}
		})
	}
}

// kill -9 takes the probes along; the target runs on and can be traced again.
func TestAttachKilled(t *testing.T) {
	testutil.RequireBPF(t)
	dir := t.TempDir()
	target := crashTarget(t)
	c := start(t, dir, "attach", itoa(target.PID()), "-o", "out.pb.gz")
	c.waitFor("tracing")
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.exitCode()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	again := start(t, dir, "attach", itoa(target.PID()), "-o", "again.pb.gz", "--json")
	again.waitFor("tracing")
	target.Send("go")
	target.WaitLine("ALLOCATED")
	target.Signal(os.Kill)
	if code := again.exitCode(); code != 0 {
		t.Fatalf("exit code %d: %s", code, again.said())
	}
	var report struct {
		Ended    string
		Sites    []struct{ Bytes, Objects int64 }
		Coverage struct {
			Allocations int64
			EventsLost  []any `json:"events_lost"`
		}
	}
	if err := json.Unmarshal(again.stdout.Bytes(), &report); err != nil {
		t.Fatalf("stdout is not JSON: %v\n%s", err, &again.stdout)
	}
	if len(report.Sites) != 1 || report.Sites[0].Bytes != 10090 || report.Sites[0].Objects != 10 {
		t.Errorf("sites = %+v, want one of 10 objects and 10090 bytes", report.Sites)
	}
	if !strings.Contains(report.Ended, "SIGKILL") && !strings.Contains(report.Ended, "exited") {
		t.Errorf("ended = %q, want the target's death", report.Ended)
	}
	if report.Coverage.Allocations != 10 || len(report.Coverage.EventsLost) != 0 {
		t.Errorf("coverage = %+v", report.Coverage)
	}
}

// A second Ctrl-C does not wait.
func TestAttachAborted(t *testing.T) {
	testutil.RequireBPF(t)
	dir := t.TempDir()
	target := crashTarget(t)
	c := start(t, dir, "attach", itoa(target.PID()), "-o", "out.pb.gz")
	c.waitFor("tracing")
	for range 2 {
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	// It may have been quick enough to end in good order.
	if code := c.exitCode(); code != exitAborted && code != 0 {
		t.Errorf("exit code %d, want %d", code, exitAborted)
	}
	if _, err := os.Stat("/proc/" + itoa(target.PID())); err != nil {
		t.Error("the target is gone")
	}
}

// A reader of the report that goes away is no error.
func TestAttachReportUnread(t *testing.T) {
	testutil.RequireBPF(t)
	target := crashTarget(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for _, args := range [][]string{{"--json"}, {}} {
		dir := t.TempDir()
		c := prepare(t, dir, append([]string{"attach", itoa(target.PID()), "-o", "out.pb.gz", "-d", "1ms"}, args...)...)
		c.Stdout = w
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if code := c.exitCode(); code != 0 {
			t.Errorf("%v: exit code %d", args, code)
		}
		if strings.Contains(c.said(), "pipe") {
			t.Errorf("%v: it complains: %q", args, c.said())
		}
		inUse(t, filepath.Join(dir, "out.pb.gz"), "")
	}
	w.Close()
}

// Without the privileges it says which are missing.
func TestAttachUnprivileged(t *testing.T) {
	testutil.RequireBPF(t)
	dir := t.TempDir()
	target := crashTarget(t)
	c := &command{t: t, wake: make(chan struct{}, 1)}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The test's binary lies where nobody may look; a copy does not.
	image, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	place, err := os.MkdirTemp("/tmp", "unfreed-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(place, "unfreed")
	if err := os.WriteFile(self, image, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Cmd = exec.Command(self, "attach", itoa(target.PID()), "-o", filepath.Join(dir, "out.pb.gz"))
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.Cmd.Stderr = c
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if code := c.exitCode(); code != exitPermission {
		t.Errorf("exit code %d, want %d", code, exitPermission)
	}
	if !strings.Contains(c.said(), "CAP_") {
		t.Errorf("stderr names no capability: %q", c.said())
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
