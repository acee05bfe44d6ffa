// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// waitLimit bounds the waits for the kernel: far above what a loaded machine
// needs, far below the limit of go test.
const waitLimit = 30 * time.Second

// startTarget starts testdata/target.c in a mode and waits until it is ready.
func startTarget(t *testing.T, mode string, args ...string) *testutil.Target {
	t.Helper()
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
	target := testutil.Start(t, exe, append([]string{mode}, args...)...)
	target.WaitLine("ready")
	return target
}

// child is a process whose parent reaps it only when told to.
type child struct {
	pid    int
	parent *testutil.Target
}

func startChild(t *testing.T) child {
	t.Helper()
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
	parent := testutil.Start(t, exe, "parent")
	var pid int
	if _, err := fmt.Sscanf(parent.WaitLine("child "), "child %d", &pid); err != nil {
		t.Fatal(err)
	}
	parent.WaitLine("ready")
	return child{pid, parent}
}

func (c child) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(c.pid, sig); err != nil {
		t.Fatal(err)
	}
}

func (c child) reap() {
	c.parent.Send("reap")
	c.parent.WaitLine("reaped")
}

func openProcess(t *testing.T, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func awaitDone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(waitLimit):
		t.Fatal("the exit was not noticed")
	}
}

// awaitState waits until a process is in a state of /proc/PID/stat. A process
// that ends has no way to tell when it has.
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

// takePID starts targets until one gets the given PID.
func takePID(t *testing.T, pid int) *testutil.Target {
	t.Helper()
	// Other processes start meanwhile and may take the number first, which then
	// is free again when they end.
	const tries = 100
	for range tries {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			testutil.Skipf(t, "ns_last_pid is missing (CONFIG_CHECKPOINT_RESTORE): %v", err)
		}
		target := startTarget(t, "wait")
		if target.PID() == pid {
			return target
		}
		target.CloseInput()
		_ = target.Wait() // its status is no matter
	}
	testutil.Skipf(t, "a free PID %d is missing after %d tries", pid, tries)
	return nil
}
