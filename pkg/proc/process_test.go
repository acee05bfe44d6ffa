// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestProcess(t *testing.T) {
	testutil.NoLeakedFDs(t)
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
	target := testutil.Start(t, exe, "threads")
	target.WaitLine("ready")
	p := openProcess(t, target.PID())

	if p.PID() != target.PID() || p.LocalPID() != target.PID() {
		t.Errorf("PID() = %d, LocalPID() = %d, want %d", p.PID(), p.LocalPID(), target.PID())
	}
	if p.Exe() != exe {
		t.Errorf("Exe() = %q, want %q", p.Exe(), exe)
	}
	if want := []string{exe, "threads"}; !slices.Equal(p.Command(), want) {
		t.Errorf("Command() = %q, want %q", p.Command(), want)
	}
	if class, err := p.Class(); err != nil || class != elf.ELFCLASS64 {
		t.Errorf("Class() = %v, %v", class, err)
	}
	if pids, err := p.NSPIDs(); err != nil || !slices.Equal(pids, []int{target.PID()}) {
		t.Errorf("NSPIDs() = %v, %v", pids, err)
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
	if _, _, err := p.Namespace("none"); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrExited) {
		t.Errorf("Namespace of a kind that does not exist: %v", err)
	}
	if !p.Alive() {
		t.Error("not alive")
	}
	if _, known := p.ExitStatus(); known {
		t.Error("exit status of a running process is known")
	}
}

func TestThreads(t *testing.T) {
	target := startTarget(t, "threads")
	threads, err := openProcess(t, target.PID()).Threads()
	if err != nil || len(threads) != 4 || !slices.IsSorted(threads) || !slices.Contains(threads, target.PID()) {
		t.Fatalf("Threads() = %v, %v; want 4 of them", threads, err)
	}
	for _, tid := range threads {
		if tid == target.PID() {
			continue
		}
		_, err := Open(tid)
		if !errors.Is(err, ErrThread) {
			t.Fatalf("opening a thread: %v, want ErrThread", err)
		}
		if want := fmt.Sprintf("%d is a thread of process %d (attach to that)", tid, target.PID()); err.Error() != want {
			t.Errorf("opening a thread: %q, want %q", err, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	testutil.NoLeakedFDs(t)
	zombie := startChild(t)
	zombie.signal(t, syscall.SIGUSR1)
	awaitState(t, zombie.pid, "Z")
	leaderless := startTarget(t, "leaderless")
	awaitState(t, leaderless.PID(), "Z")
	for _, test := range []struct {
		name string
		pid  int
		want error
		says string
	}{
		{"negative", -1, ErrNoProcess, ""},
		{"zero", 0, ErrNoProcess, ""},
		{"beyond pid_max", 1 << 30, ErrNoProcess, ""},
		{"zombie", zombie.pid, ErrZombie, "has not waited for it"},
		{"main thread gone", leaderless.PID(), ErrZombie, "main thread has exited"},
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
		testutil.Skipf(t, "a visible kernel thread is missing: this is not the host's PID namespace")
	}
	return 2
}

func TestExit(t *testing.T) {
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		check  func(syscall.WaitStatus) bool
	}{
		{"exit code", syscall.SIGUSR1, func(s syscall.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 7 }},
		{"signal", syscall.SIGKILL, func(s syscall.WaitStatus) bool { return s.Signaled() && s.Signal() == syscall.SIGKILL }},
	} {
		t.Run(test.name, func(t *testing.T) {
			child := startChild(t)
			p := openProcess(t, child.pid)
			child.signal(t, test.signal)
			awaitDone(t, p)
			if p.Alive() {
				t.Error("alive after Done")
			}
			status, known := p.ExitStatus()
			if !known || !test.check(syscall.WaitStatus(status)) {
				t.Errorf("ExitStatus() = %#x, %v", status, known)
			}
			checkGone(t, p)
			child.reap()
			checkGone(t, p)
			if again, known := p.ExitStatus(); !known || again != status {
				t.Errorf("ExitStatus() after reaping = %#x, %v; before %#x", again, known, status)
			}
		})
	}
}

// TestExitStatusOfReaped asks the pidfd alone, as when the parent was quicker.
func TestExitStatusOfReaped(t *testing.T) {
	child := startChild(t)
	p := openProcess(t, child.pid)
	child.signal(t, syscall.SIGUSR1)
	child.reap()
	awaitDone(t, p)
	p.exit.Store(nil)
	status, known := p.ExitStatus()
	if !known {
		t.Skip("a kernel with PIDFD_INFO_EXIT (6.15) is missing")
	}
	if s := syscall.WaitStatus(status); !s.Exited() || s.ExitStatus() != 7 {
		t.Errorf("ExitStatus() = %#x", status)
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
	target := startTarget(t, "wait")
	p := openProcess(t, target.PID())
	same, err := OpenStarted(target.PID(), p.StartTicks())
	if err != nil {
		t.Fatal(err)
	}
	same.Close()
	// A reused PID is a process with that number that started at another time.
	if _, err := OpenStarted(target.PID(), p.StartTicks()-1); !errors.Is(err, ErrReused) {
		t.Errorf("got %v, want ErrReused", err)
	}
}

// TestReusedPID lets another process really take the number of the first.
func TestReusedPID(t *testing.T) {
	testutil.RequireRoot(t)
	first := startChild(t)
	p := openProcess(t, first.pid)
	first.signal(t, syscall.SIGKILL)
	first.reap()
	awaitDone(t, p)
	second := takePID(t, first.pid)
	if p.Alive() {
		t.Error("alive after its PID went to another process")
	}
	checkGone(t, p)
	openProcess(t, second.PID())
}

func TestExecKeepsIdentity(t *testing.T) {
	target := startTarget(t, "exec")
	p := openProcess(t, target.PID())
	target.Send("exec")
	target.WaitLine("ready")
	if !p.Alive() {
		t.Fatal("not alive after exec")
	}
	maps, err := p.Maps()
	if err != nil || len(maps) == 0 {
		t.Fatalf("Maps() after exec = %d mappings, %v", len(maps), err)
	}
	again, err := OpenStarted(target.PID(), p.StartTicks())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Command()[1] != "wait" {
		t.Errorf("Command() after exec = %q", again.Command())
	}
}

func TestClose(t *testing.T) {
	testutil.NoLeakedFDs(t)
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
	if _, err := p.Maps(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Maps() after Close: %v, want os.ErrClosed", err)
	}
}

func TestClass32(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("an architecture with a 32-bit sibling (amd64) is missing")
	}
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"}, "-m32", "-nostdlib", "-static", "-DFREESTANDING")
	target := testutil.Start(t, exe)
	target.WaitLine("ready")
	if class, err := openProcess(t, target.PID()).Class(); err != nil || class != elf.ELFCLASS32 {
		t.Errorf("Class() = %v, %v; want ELFCLASS32", class, err)
	}
}

// A process that goes away is told without the names by which it was read.
func TestGoneMessage(t *testing.T) {
	target := startTarget(t, "threads")
	p := openProcess(t, target.PID())
	target.Signal(os.Kill)
	<-p.Done()
	_ = target.Wait()
	_, err := p.stat()
	if !errors.Is(err, ErrExited) || strings.Contains(err.Error(), "/proc/self") {
		t.Errorf("reading the status of a process that has exited: %v", err)
	}
}
