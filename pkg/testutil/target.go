// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// deadline bounds each wait for a target. It is far above what any target
// needs, so that it ends only tests that hang, also on a loaded machine.
const deadline = 2 * time.Minute

// drain bounds how long the output of a process that has ended is still read:
// what it wrote is there at once, but a child that outlives it may hold the
// pipe open.
const drain = time.Second

// Target is a running process under test: it prints markers on stdout, a line
// each, and takes orders on stdin. Its methods are for the test's goroutine;
// those that wait end the test when a deadline passes.
type Target struct {
	tb     testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited chan struct{} // closed once waited for
	read   chan struct{} // closed once stdout and stderr are at their ends
	err    error         // of Wait; read after exited

	mu     sync.Mutex
	wake   chan struct{} // closed and replaced at each change
	lines  []string      // stdout
	next   int           // first line WaitLine has not consumed
	ended  bool          // stdout is at its end
	stderr strings.Builder
}

// Start starts a command as a target. When the test ends, the target and every
// process it left in its process group are killed.
func Start(tb testing.TB, name string, args ...string) *Target {
	tb.Helper()
	return StartCmd(tb, exec.Command(name, args...))
}

// StartCmd starts a prepared command, whose standard streams must be unset, as
// a target; see [Start].
func StartCmd(tb testing.TB, cmd *exec.Cmd) *Target {
	tb.Helper()
	t := &Target{
		tb:     tb,
		cmd:    cmd,
		exited: make(chan struct{}),
		read:   make(chan struct{}),
		wake:   make(chan struct{}),
	}
	// A group of its own, so that a target's children end with it.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	var err error
	if t.stdin, err = cmd.StdinPipe(); err != nil {
		tb.Fatalf("making a pipe for %s: %v", cmd, err)
	}
	// Pipes of our own: those of StdoutPipe are closed by Wait, maybe unread.
	stdout, stdoutW := pipe(tb)
	stderr, stderrW := pipe(tb)
	cmd.Stdout, cmd.Stderr = stdoutW, stderrW
	err = cmd.Start()
	stdoutW.Close()
	stderrW.Close()
	if err != nil {
		tb.Fatalf("starting %s: %v", cmd, err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { t.readLines(stdout) })
	readers.Go(func() { t.readErrors(stderr) })
	go func() {
		t.err = cmd.Wait()
		close(t.exited)
	}()
	go func() {
		readers.Wait()
		close(t.read)
	}()
	tb.Cleanup(func() {
		t.kill()
		<-t.exited
		t.drained()
		stdout.Close()
		stderr.Close()
		<-t.read
		if tb.Failed() {
			tb.Logf("output of %s:\n%s%s", cmd, t.Output(), t.Errors())
		}
	})
	return t
}

func pipe(tb testing.TB) (r, w *os.File) {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatalf("making a pipe: %v", err)
	}
	return r, w
}

// drained waits for the output's end, or for drain to pass.
func (t *Target) drained() {
	select {
	case <-t.read:
	case <-time.After(drain):
	}
}

// kill ends the target's process group. The group's number stays taken while a
// member lives or the leader is unreaped; a group already gone is no error.
func (t *Target) kill() {
	err := syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		t.tb.Errorf("killing process group %d: %v", t.cmd.Process.Pid, err)
	}
}

func (t *Target) readLines(r io.Reader) {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		t.mu.Lock()
		if line != "" {
			t.lines = append(t.lines, strings.TrimSuffix(line, "\n"))
		}
		t.ended = err != nil
		close(t.wake)
		t.wake = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (t *Target) readErrors(r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		t.mu.Lock()
		t.stderr.Write(buf[:n])
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// PID returns the target's process id.
func (t *Target) PID() int { return t.cmd.Process.Pid }

// WaitLine waits for a line of stdout that starts with marker and returns it
// whole. It consumes that line and those before it. It ends the test if stdout
// ends or a deadline passes first.
func (t *Target) WaitLine(marker string) string {
	t.tb.Helper()
	timeout := time.After(deadline)
	for {
		line, ended, wake := t.scan(marker)
		switch {
		case wake == nil:
			return line
		case ended:
			t.tb.Fatalf("waiting for %q: the target closed its output", marker)
		}
		select {
		case <-wake:
		case <-timeout:
			t.tb.Fatalf("waiting for %q: nothing within %v", marker, deadline)
		}
	}
}

// scan consumes lines up to one with the marker. If there is none it returns a
// channel that is closed when there is more to scan.
func (t *Target) scan(marker string) (line string, ended bool, wake <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next < len(t.lines) {
		line := t.lines[t.next]
		t.next++
		if strings.HasPrefix(line, marker) {
			return line, false, nil
		}
	}
	return "", t.ended, t.wake
}

// Send writes a line to the target's stdin.
func (t *Target) Send(line string) {
	t.tb.Helper()
	if _, err := io.WriteString(t.stdin, line+"\n"); err != nil {
		t.tb.Fatalf("sending %q to the target: %v", line, err)
	}
}

// CloseInput closes the target's stdin.
func (t *Target) CloseInput() {
	t.tb.Helper()
	if err := t.stdin.Close(); err != nil {
		t.tb.Fatalf("closing the target's input: %v", err)
	}
}

// Signal sends the target a signal.
func (t *Target) Signal(sig os.Signal) {
	t.tb.Helper()
	if err := t.cmd.Process.Signal(sig); err != nil {
		t.tb.Fatalf("sending %v to the target: %v", sig, err)
	}
}

// Wait waits for the target to end and returns what [exec.Cmd.Wait] does: nil
// if it exited with status 0, else an *[exec.ExitError]. [Target.Output] is then
// complete. It ends the test if a deadline passes first.
func (t *Target) Wait() error {
	t.tb.Helper()
	select {
	case <-t.exited:
	case <-time.After(deadline):
		t.tb.Fatalf("waiting for process %d to end: it runs after %v", t.PID(), deadline)
	}
	t.drained()
	return t.err
}

// Output returns the lines that stdout had so far.
func (t *Target) Output() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return ""
	}
	return strings.Join(t.lines, "\n") + "\n"
}

// Errors returns what stderr had so far.
func (t *Target) Errors() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stderr.String()
}
