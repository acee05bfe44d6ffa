// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waitLimit bounds every wait for something that a target does: far above what
// a loaded machine needs, far below the limit of go test.
const waitLimit = 30 * time.Second

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

func TestProcess(t *testing.T) {
	child := startTarget(t, "threads")
	p := openProcess(t, child.Pid)

	if p.PID() != child.Pid || p.LocalPID() != child.Pid {
		t.Errorf("PID() = %d, LocalPID() = %d, want %d", p.PID(), p.LocalPID(), child.Pid)
	}
	if p.Exe() != targetPath(t) {
		t.Errorf("Exe() = %q, want %q", p.Exe(), targetPath(t))
	}
	if want := []string{targetPath(t), "threads"}; !slices.Equal(p.Command(), want) {
		t.Errorf("Command() = %q, want %q", p.Command(), want)
	}
	if class, err := p.Class(); err != nil || class != elf.ELFCLASS64 {
		t.Errorf("Class() = %v, %v", class, err)
	}
	if pids, err := p.NSPIDs(); err != nil || !slices.Equal(pids, []int{child.Pid}) {
		t.Errorf("NSPIDs() = %v, %v", pids, err)
	}
	threads, err := p.Threads()
	if err != nil || len(threads) != 4 || !slices.IsSorted(threads) || !slices.Contains(threads, child.Pid) {
		t.Errorf("Threads() = %v, %v; want 4 of them", threads, err)
	}
	if rss, err := p.RSS(); err != nil || rss < 64<<10 || rss > 64<<20 {
		t.Errorf("RSS() = %d, %v", rss, err)
	}
	self := openProcess(t, os.Getpid())
	dev, ino, err := p.PIDNamespace()
	ownDev, ownIno, ownErr := self.PIDNamespace()
	if err != nil || ownErr != nil || ino == 0 || dev != ownDev || ino != ownIno {
		t.Errorf("PIDNamespace() = %d, %d, %v; own %d, %d, %v", dev, ino, err, ownDev, ownIno, ownErr)
	}
	if _, err := Open(threads[len(threads)-1]); !errors.Is(err, ErrThread) {
		t.Errorf("opening a thread: %v, want ErrThread", err)
	}
	if !p.Alive() {
		t.Error("not alive")
	}
	if _, known := p.ExitStatus(); known {
		t.Error("exit status of a running process is known")
	}
}

func TestOpenRefuses(t *testing.T) {
	zombie := startTarget(t, "exit")
	awaitState(t, zombie.Pid, "Z")
	leaderless := startTarget(t, "leaderless")
	awaitState(t, leaderless.Pid, "Z")
	for _, test := range []struct {
		name string
		pid  int
		want error
		says string
	}{
		{"negative", -1, ErrNoProcess, ""},
		{"zero", 0, ErrNoProcess, ""},
		{"beyond pid_max", 1 << 30, ErrNoProcess, ""},
		{"zombie", zombie.Pid, ErrZombie, "has not waited for it"},
		{"main thread gone", leaderless.Pid, ErrZombie, "main thread has exited"},
		{"kernel thread", kthreadd(t), ErrKernelThread, `"kthreadd"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Open(test.pid)
			if err == nil {
				p.Close()
			}
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.says)
			}
		})
	}
}

func kthreadd(t *testing.T) int {
	t.Helper()
	comm, err := os.ReadFile("/proc/2/comm")
	if err != nil || string(bytes.TrimSpace(comm)) != "kthreadd" {
		t.Skip("no kernel thread to be seen: this is not the host's PID namespace")
	}
	return 2
}

func TestExit(t *testing.T) {
	for _, test := range []struct {
		name  string
		stop  func(*target)
		check func(syscall.WaitStatus) bool
	}{
		{"exit code", func(c *target) { c.finish(t) }, func(s syscall.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 7 }},
		{"signal", func(c *target) { c.kill(t) }, func(s syscall.WaitStatus) bool { return s.Signaled() && s.Signal() == syscall.SIGKILL }},
	} {
		t.Run(test.name, func(t *testing.T) {
			child := startTarget(t, "wait")
			p := openProcess(t, child.Pid)
			test.stop(child)
			awaitDone(t, p)
			if p.Alive() {
				t.Error("alive after Done")
			}
			status, known := p.ExitStatus()
			if !known || !test.check(syscall.WaitStatus(status)) {
				t.Errorf("ExitStatus() = %#x, %v", status, known)
			}
			checkGone(t, p)
			child.reap(t)
			checkGone(t, p)
			if again, known := p.ExitStatus(); !known || again != status {
				t.Errorf("ExitStatus() after reaping = %#x, %v; before %#x", again, known, status)
			}
		})
	}
}

// checkGone checks that no method answers for a process that has exited.
func checkGone(t *testing.T, p *Process) {
	t.Helper()
	var word [8]byte
	_, readErr := p.ReadAt(word[:], 0x1000)
	_, mapsErr := p.Maps()
	_, classErr := p.Class()
	_, rootErr := p.OpenInRoot("/etc/passwd")
	_, mapErr := p.OpenMapping(Mapping{Start: 0x1000, End: 0x2000, Inode: 1, Path: "/etc/passwd"})
	for name, err := range map[string]error{
		"ReadAt": readErr, "Maps": mapsErr, "Class": classErr, "OpenInRoot": rootErr, "OpenMapping": mapErr,
	} {
		if !errors.Is(err, ErrExited) {
			t.Errorf("%s: got %v, want ErrExited", name, err)
		}
	}
}

func TestOpenStarted(t *testing.T) {
	child := startTarget(t, "wait")
	p := openProcess(t, child.Pid)
	same, err := OpenStarted(child.Pid, p.StartTicks())
	if err != nil {
		t.Fatal(err)
	}
	same.Close()
	// A reused PID is a process with that number that started at another time.
	if _, err := OpenStarted(child.Pid, p.StartTicks()-1); !errors.Is(err, ErrReused) {
		t.Errorf("got %v, want ErrReused", err)
	}
}

// TestReusedPID lets a second process really take the number of the first,
// through clone3's set_tid in the form that /proc offers (ns_last_pid).
func TestReusedPID(t *testing.T) {
	requireRoot(t)
	child := startTarget(t, "wait")
	p := openProcess(t, child.Pid)
	child.kill(t)
	awaitDone(t, p)
	child.reap(t)
	second := takePID(t, child.Pid)
	if p.Alive() {
		t.Error("alive after its PID went to another process")
	}
	checkGone(t, p)
	if _, err := OpenStarted(second.Pid, p.StartTicks()-1); !errors.Is(err, ErrReused) {
		t.Errorf("opening the PID again: %v, want ErrReused", err)
	}
}

func TestExecKeepsIdentity(t *testing.T) {
	child := startTarget(t, "exec")
	p := openProcess(t, child.Pid)
	child.say(t, "go")
	child.await(t, "ready")
	if !p.Alive() {
		t.Fatal("not alive after exec")
	}
	maps, err := p.Maps()
	if err != nil || len(maps) == 0 {
		t.Fatalf("Maps() after exec = %d mappings, %v", len(maps), err)
	}
	again, err := OpenStarted(child.Pid, p.StartTicks())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Command()[1] != "wait" {
		t.Errorf("Command() after exec = %q", again.Command())
	}
}

func TestClose(t *testing.T) {
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	}
	if p.Alive() {
		t.Error("alive after Close")
	}
	if _, err := p.Maps(); err == nil {
		t.Error("Maps() works after Close")
	}
}

func TestClass32(t *testing.T) {
	exe := buildTarget(t, "-m32", "-nostdlib", "-static", "-DFREESTANDING")
	cmd := exec.Command(exe)
	child := start(t, cmd)
	p := openProcess(t, child.Pid)
	if class, err := p.Class(); err != nil || class != elf.ELFCLASS32 {
		t.Errorf("Class() = %v, %v; want ELFCLASS32", class, err)
	}
}
