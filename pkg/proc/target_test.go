// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// target is a running testdata/target.c.
type target struct {
	Pid   int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	said  string // the line before the last marker
	reap1 sync.Once
}

var targetOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "unfreed-proc")
	if err != nil {
		return "", err
	}
	return compile(dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if exe, err := targetOnce(); err == nil {
		os.RemoveAll(filepath.Dir(exe))
	}
	os.Exit(code)
}

func compile(dir string, flags ...string) (string, error) {
	exe := filepath.Join(dir, "target")
	args := append([]string{"-Wall", "-Werror", "-O1", "-o", exe, "testdata/target.c", "-pthread"}, flags...)
	out, err := exec.Command("cc", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc %q: %w\n%s", args, err, out)
	}
	return exe, nil
}

// targetPath builds the target once for all tests.
func targetPath(t *testing.T) string {
	t.Helper()
	exe, err := targetOnce()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		skip(t, "no C compiler (cc)")
	case err != nil:
		t.Fatal(err)
	}
	return exe
}

// buildTarget builds a variant of the target.
func buildTarget(t *testing.T, flags ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("32-bit programs are built on amd64 only")
	}
	exe, err := compile(t.TempDir(), flags...)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		skip(t, "no C compiler (cc)")
	case err != nil:
		t.Fatal(err)
	}
	return exe
}

// startTarget starts the target in a mode; unless the mode is to exit at once it
// has printed "ready" on return.
func startTarget(t *testing.T, mode string, args ...string) *target {
	t.Helper()
	return start(t, exec.Command(targetPath(t), append([]string{mode}, args...)...))
}

// start starts a program that prints "ready", or exits.
func start(t *testing.T, cmd *exec.Cmd) *target {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	child := &target{Pid: cmd.Process.Pid, cmd: cmd, stdin: stdin, lines: make(chan string, 16)}
	go func() {
		defer out.Close()
		defer close(child.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			child.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		child.wait()
	})
	child.await(t, "ready")
	return child
}

// await reads up to a marker, or to the end if the target closes its output,
// and keeps the line before it in said.
func (c *target) await(t *testing.T, marker string) {
	t.Helper()
	timeout := time.After(waitLimit)
	for {
		select {
		case line, open := <-c.lines:
			if !open || line == marker {
				return
			}
			c.said = line
		case <-timeout:
			t.Fatalf("the target did not print %q", marker)
		}
	}
}

func (c *target) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// finish lets the target return from main.
func (c *target) finish(t *testing.T) { c.say(t, "end") }

func (c *target) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// reap waits for the exited target, so that its PID is free.
func (c *target) reap(t *testing.T) { t.Helper(); c.wait() }

func (c *target) wait() { c.reap1.Do(func() { _ = c.cmd.Wait() }) } // its status is no matter here

// awaitState waits until a process is in a state of /proc/PID/stat. There is
// nothing to wait on for the parent of a zombie-to-be that must not reap it.
func awaitState(t *testing.T, pid int, state string) {
	t.Helper()
	for end := time.Now().Add(waitLimit); time.Now().Before(end); runtime.Gosched() {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, ok := cutLast(string(text), ") "); ok && strings.HasPrefix(rest, state+" ") {
			return
		}
	}
	t.Fatalf("process %d did not come into state %s", pid, state)
}

// takePID starts a target until one gets the given PID.
func takePID(t *testing.T, pid int) *target {
	t.Helper()
	const tries = 20
	for range tries {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			skip(t, "kernel without ns_last_pid (CONFIG_CHECKPOINT_RESTORE): "+err.Error())
		}
		child := startTarget(t, "wait")
		if child.Pid == pid {
			return child
		}
		child.kill(t)
		child.reap(t)
	}
	skip(t, fmt.Sprintf("PID %d was not to be had in %d tries", pid, tries))
	return nil
}

func requireRoot(t *testing.T) {
	t.Helper()
	if syscall.Geteuid() != 0 {
		skip(t, "not root")
	}
}

// skip skips a test for a reason that the machine is to blame for; with
// REQUIRE_BPF=1 that is a failure.
func skip(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("REQUIRE_BPF") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
