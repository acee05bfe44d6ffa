// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// publicTarget starts the target from a folder that every user can reach, as
// nobody, and returns it with its path.
func publicTarget(t *testing.T, args ...string) (*testutil.Target, string) {
	t.Helper()
	testutil.RequireRoot(t)
	dir, err := os.MkdirTemp("", "unfreed-proc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"}))
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "target")
	if err := os.WriteFile(exe, image, 0o755); err != nil {
		t.Fatal(err)
	}
	target := testutil.StartCmd(t, asNobody(exec.Command(exe, args...)))
	target.WaitLine("ready")
	return target, exe
}

func TestWithoutPrivileges(t *testing.T) {
	const magic = "\x7fELF"
	t.Run("another user's process", func(t *testing.T) {
		target := startTarget(t, "wait")
		got := sight(t, asNobody(helper(t, target.PID())))
		if !got.Permission || !slices.Equal(got.Missing, []string{"CAP_SYS_PTRACE"}) || !strings.Contains(got.Open, "sudo") {
			t.Errorf("got %+v, want the missing CAP_SYS_PTRACE", got)
		}
	})
	t.Run("own process", func(t *testing.T) {
		target, _ := publicTarget(t)
		got := sight(t, asNobody(helper(t, target.PID())))
		if got.Exe != magic || got.Memory != magic || got.PID != target.PID() {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("own process, replaced file", func(t *testing.T) {
		target, exe := publicTarget(t)
		if err := os.Remove(exe); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(exe, []byte("something else"), 0o755); err != nil {
			t.Fatal(err)
		}
		got := sight(t, asNobody(helper(t, target.PID())))
		if !got.IsReplaced || !strings.Contains(got.Mapping, "CAP_CHECKPOINT_RESTORE") {
			t.Errorf("got %+v, want ErrReplaced with the capability that helps", got)
		}
		if got = sight(t, helper(t, target.PID())); got.Exe != magic {
			t.Errorf("as root: got %+v", got)
		}
	})
}

func TestOtherPIDNamespace(t *testing.T) {
	t.Run("outside", func(t *testing.T) {
		target := startTarget(t, "wait")
		cmd := helper(t, target.PID())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if got := sight(t, cmd); !got.OtherNS {
			t.Errorf("got %+v, want ErrOtherNamespace", got)
		}
	})
	t.Run("inside, seen from outside", func(t *testing.T) {
		testutil.RequireRoot(t)
		cmd := exec.Command(testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"}))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		target := testutil.StartCmd(t, cmd)
		target.WaitLine("ready")
		p := openProcess(t, target.PID())
		if pids, err := p.NSPIDs(); err != nil || !slices.Equal(pids, []int{target.PID(), 1}) {
			t.Errorf("NSPIDs() = %v, %v; want %d and 1", pids, err, target.PID())
		}
		if p.LocalPID() != target.PID() {
			t.Errorf("LocalPID() = %d, want %d", p.LocalPID(), target.PID())
		}
	})
	// /proc numbers processes as the host does, system calls as the container.
	t.Run("both inside, the host's proc", func(t *testing.T) {
		testutil.RequireTool(t, "unshare")
		target := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
		// The shell is process 1 of the new namespace, its child 2.
		script := `exec 4<&0
			` + target + ` wait <&4 > /dev/null &
			for dir in /proc/[0-9]*; do
				[ "$(readlink $dir/exe)" = ` + target + ` ] && break
			done
			` + helperEnv + `=${dir#/proc/} "$0"`
		cmd := helper(t, 0, "unshare", "--pid", "--fork", "sh", "-c", script)
		in, hold, err := os.Pipe() // the target's input
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer hold.Close()
		cmd.Stdin = in
		got := sight(t, cmd)
		if got.Local != 2 || got.PID <= 2 || got.Exe != "\x7fELF" || got.Memory != got.Exe {
			t.Errorf("got %+v, want process 2", got)
		}
	})
	t.Run("proc of an inner namespace", func(t *testing.T) {
		testutil.RequireRoot(t)
		testutil.RequireTool(t, "unshare", "nsenter")
		inner := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
		target := testutil.Start(t, "unshare", "--pid", "--fork", "--mount-proc", inner)
		target.WaitLine("ready")
		cmd := helper(t, 1)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		nsenter := exec.Command("nsenter", "--mount=/proc/"+strconv.Itoa(childOf(t, target.PID()))+"/ns/mnt", self)
		nsenter.Env = cmd.Env
		if got := sight(t, nsenter); !got.OtherNS {
			t.Errorf("got %+v, want ErrOtherNamespace", got)
		}
	})
}

// childOf returns the first child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	name := strconv.Itoa(pid)
	text, err := os.ReadFile(filepath.Join("/proc", name, "task", name, "children"))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func TestHiddenProcess(t *testing.T) {
	testutil.RequireTool(t, "unshare", "setpriv")
	target := startTarget(t, "wait")
	for option, says := range map[string]string{
		"noaccess": "CAP_SYS_PTRACE", "invisible": "hidepid", "ptraceable": "hidepid",
	} {
		t.Run(option, func(t *testing.T) {
			script := "mount -t proc -o hidepid=" + option + ` proc /proc &&
				exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0"`
			got := sight(t, helper(t, target.PID(), "unshare", "--mount", "sh", "-c", script))
			if !got.Permission || !strings.Contains(got.Open, says) {
				t.Errorf("got %+v, want ErrPermission with %q", got, says)
			}
			got = sight(t, helper(t, 1<<30, "unshare", "--mount", "sh", "-c", script))
			if !got.NoProcess {
				t.Errorf("got %+v, want ErrNoProcess", got)
			}
		})
	}
}
