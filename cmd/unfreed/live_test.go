// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestObey(t *testing.T) {
	const hup, intr, term = syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM
	for _, tt := range []struct {
		signals []os.Signal
		want    []string
	}{
		{nil, nil},
		{[]os.Signal{intr}, []string{"end"}},
		{[]os.Signal{intr, intr}, []string{"end", "abort"}},
		{[]os.Signal{intr, term}, []string{"end", "abort"}},
		{[]os.Signal{hup, hup, hup}, []string{"end"}},
		{[]os.Signal{intr, hup}, []string{"end"}},
		{[]os.Signal{hup, hup, intr}, []string{"end", "abort"}},
	} {
		t.Run(fmt.Sprint(tt.signals), func(t *testing.T) {
			c, done, returned := make(chan os.Signal), make(chan struct{}), make(chan struct{})
			var got []string
			go func() {
				defer close(returned)
				obey(c, done, func() { got = append(got, "end") }, func() { got = append(got, "abort") })
			}()
			for _, s := range tt.signals {
				select {
				case c <- s:
				case <-returned:
				}
			}
			close(done)
			<-returned
			if !slices.Equal(got, tt.want) {
				t.Errorf("did %v, want %v", got, tt.want)
			}
		})
	}
}

// A terminal that goes away takes nothing along: the kernel and the shell both
// send SIGHUP, and writing to it fails.
func TestAttachHangup(t *testing.T) {
	testutil.RequireBPF(t)
	bash := testutil.RequireTool(t, "bash")
	dir := t.TempDir()
	target := crashTarget(t)
	self := filepath.Join(t.TempDir(), "unfreed")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, self); err != nil {
		t.Fatal(err)
	}
	master, slave := openPTY(t)
	alive, held, err := os.Pipe() // open as long as anything runs there
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	cmd := exec.Command(bash, "--norc", "--noprofile", "-i")
	cmd.Dir = dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.ExtraFiles = []*os.File{held}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	slave.Close()
	held.Close()
	if _, err := fmt.Fprintf(master, "%s attach %d -o out.pb.gz\n", self, target.PID()); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for b := make([]byte, 4096); !strings.Contains(seen.String(), "tracing; Ctrl-C ends"); {
		n, err := master.Read(b)
		if err != nil {
			t.Fatalf("reading the terminal: %v after %q", err, seen.String())
		}
		seen.Write(b[:n])
	}
	target.Send("go")
	target.WaitLine("ALLOCATED")
	master.Close()
	if _, err := io.Copy(io.Discard, alive); err != nil {
		t.Fatal(err)
	}
	if n := inUse(t, filepath.Join(dir, "out.pb.gz"), "before_crash"); n != 10090 {
		t.Errorf("%d bytes in the profile, want 10090", n)
	}
}

// openPTY opens a new pseudoterminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		testutil.Skipf(t, "a pseudoterminal is missing: %v", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}
