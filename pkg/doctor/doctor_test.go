// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/kfeature"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// find returns the finding with an id.
func find(t *testing.T, r *Report, id string) Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == id })
	if i < 0 {
		t.Fatalf("no finding %q in\n%s", id, Text(r, TextOptions{}))
	}
	return r.Findings[i]
}

func check(t *testing.T, pid int) *Report {
	t.Helper()
	r, err := Check(t.Context(), Options{Version: "test", PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range r.Findings {
		if seen[f.ID] {
			t.Errorf("two findings %q", f.ID)
		}
		seen[f.ID] = true
		if f.Area == "" || f.Name == "" || f.State == "" || f.Detail == "" && f.State != Unknown {
			t.Errorf("unfinished finding %+v", f)
		}
		if len(f.Name) > nameColumn-2 {
			t.Errorf("%q is too long for its column", f.Name)
		}
		if f.State != OK && f.Reason == "" {
			t.Errorf("finding without a reason: %+v", f)
		}
	}
	if r.Attach != (r.Blocked() == nil) {
		t.Errorf("attach_works is %v, blocked by %v", r.Attach, r.Blocked())
	}
	return r
}

func TestMachine(t *testing.T) {
	testutil.RequireBPF(t)
	testutil.NoLeakedFDs(t)
	r := check(t, 0)
	if !r.Attach {
		t.Errorf("uprobes work here, but:\n%s", Text(r, TextOptions{}))
	}
	for _, f := range r.Findings {
		if f.Area == Target {
			t.Errorf("finding about no target: %+v", f)
		}
		if f.State == Unknown {
			t.Errorf("root must know: %+v", f)
		}
	}
	if r.Kernel == "" || r.Machine == "" || r.Process != nil {
		t.Errorf("report %+v", r)
	}
}

// TestTargets looks at processes of each kind and at one thing that is special
// about them.
func TestTargets(t *testing.T) {
	testutil.RequireBPF(t)
	simple := func(t *testing.T, flags ...string) string {
		return testutil.BuildC(t, []string{"testdata/targets/c/simple.c"}, append(flags, "-fno-builtin")...)
	}
	for _, test := range []struct {
		name   string
		cmd    func(t *testing.T) *exec.Cmd
		marker string
		want   []Finding // ID, State, and a part of Detail and of Reason
		blocks string    // ID of what is in the way
	}{
		{
			name: "C", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd { return exec.Command(simple(t)) },
			want: []Finding{
				{ID: "class", State: OK, Detail: "64-bit"},
				{ID: "namespaces", State: OK, Detail: "the same"},
				{ID: "threads", State: OK, Detail: "1 thread"},
				{ID: "memory", State: OK, Detail: "iB resident"},
				{ID: "libc", State: OK, Detail: "glibc in /"},
				{ID: "allocators", State: OK, Detail: "none"},
				{ID: "functions", State: OK, Detail: "in 1 file"},
				{ID: "python", State: OK, Detail: "none: stacks are native"},
				{ID: "files", State: OK, Detail: "files with code"},
				{ID: "unwind", State: OK, Detail: "rows of"},
			},
		},
		{
			name: "musl", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd {
				return exec.Command(testutil.BuildWith(t, "musl-gcc", []string{"testdata/targets/c/simple.c"}, "-fno-builtin"))
			},
			want: []Finding{{ID: "libc", State: OK, Detail: "musl in /"}},
		},
		{
			name: "jemalloc", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd {
				cmd := exec.Command(simple(t))
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+library(t, "libjemalloc.so.2"))
				return cmd
			},
			want: []Finding{{ID: "allocators", State: OK, Detail: "libjemalloc.so.2"}, {ID: "libc", State: OK, Detail: "glibc"}},
		},
		{
			name: "static and stripped", marker: "READY",
			cmd:    func(t *testing.T) *exec.Cmd { return exec.Command(simple(t, "-static", "-s")) },
			want:   []Finding{{ID: "libc", State: Degraded, Detail: "none"}, {ID: "functions", State: Missing, Reason: "known name"}},
			blocks: "functions",
		},
		{
			name: "no C library", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd {
				return exec.Command(testutil.BuildC(t, []string{"testdata/targets/c/nolibc.c"}, "-nostdlib", "-static", "-fno-stack-protector"))
			},
			want:   []Finding{{ID: "functions", State: Missing, Detail: "none"}},
			blocks: "functions",
		},
		{
			name: "a library without unwind tables", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd {
				cmd := exec.Command(simple(t))
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+testutil.BuildC(t, []string{"pkg/doctor/testdata/noframes.c"},
					"-shared", "-fPIC", "-nostdlib", "-g0", "-fno-asynchronous-unwind-tables"))
				return cmd
			},
			want: []Finding{{ID: "unwind", State: Degraded, Reason: "libnoframes.so: no unwind information"}},
		},
		{
			name: "a library of data", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd {
				cmd := exec.Command(simple(t))
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+testutil.BuildC(t, []string{"pkg/doctor/testdata/data.c"}, "-shared", "-fPIC", "-g0"))
				return cmd
			},
			want: []Finding{{ID: "unwind", State: OK}},
		},
		{
			name: "another mount and PID namespace", marker: "READY",
			cmd: func(t *testing.T) *exec.Cmd {
				cmd := exec.Command(simple(t))
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
				return cmd
			},
			want: []Finding{{ID: "namespaces", State: OK, Detail: "mount, PID of its own, as in a container; inside it is PID 1"}},
		},
		{
			name: "32-bit", marker: "ready",
			cmd: func(t *testing.T) *exec.Cmd {
				if runtime.GOARCH != "amd64" {
					t.Skip("an architecture with a 32-bit sibling (amd64) is missing")
				}
				return exec.Command(testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"}, "-m32", "-nostdlib", "-static", "-DFREESTANDING"))
			},
			want:   []Finding{{ID: "class", State: Missing, Detail: "32-bit"}},
			blocks: "class",
		},
		{
			name: "Python", marker: "ready",
			cmd: func(t *testing.T) *exec.Cmd {
				return exec.Command(testutil.RequireTool(t, "python3"), "-c", "print('ready', flush=True); input()")
			},
			want: []Finding{{ID: "python", State: OK, Detail: "CPython 3."}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			testutil.NoLeakedFDs(t)
			target := testutil.StartCmd(t, test.cmd(t))
			target.WaitLine(test.marker)
			r := check(t, target.PID())
			for _, want := range test.want {
				got := find(t, r, want.ID)
				if got.State != want.State || !strings.Contains(got.Detail, want.Detail) || !strings.Contains(got.Reason, want.Reason) {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
			checkBlocked(t, r, test.blocks)
			if r.Process == nil || r.Process.PID != target.PID() || len(r.Process.Command) == 0 {
				t.Errorf("process %+v", r.Process)
			}
		})
	}
}

func checkBlocked(t *testing.T, r *Report, id string) {
	t.Helper()
	got := ""
	if f := r.Blocked(); f != nil {
		got = f.ID
	}
	if got != id {
		t.Errorf("blocked by %q, want %q:\n%s", got, id, Text(r, TextOptions{}))
	}
}

// library finds a shared library where this machine's multiarch folder has it.
func library(t *testing.T, name string) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/" + name)
	if len(found) == 0 {
		testutil.Skipf(t, "%s is missing (install it with .ci/deps.sh test)", name)
	}
	return found[0]
}

func TestDeletedProgram(t *testing.T) {
	testutil.RequireBPF(t)
	exe := testutil.BuildC(t, []string{"testdata/targets/c/simple.c"}, "-fno-builtin")
	target := testutil.Start(t, exe)
	target.WaitLine("READY")
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	f := find(t, check(t, target.PID()), "files")
	if f.State != OK || !strings.Contains(f.Detail, "1 of them deleted or replaced") {
		t.Errorf("got %+v", f)
	}
}

func TestNoProcess(t *testing.T) {
	r := check(t, 1<<30)
	f := find(t, r, "process")
	if f.State != Missing || !errors.Is(f.Err, proc.ErrNoProcess) || f.Reason != "no such process" || f.Remedy == "" {
		t.Errorf("got %+v", f)
	}
	if r.Attach || r.Process != nil {
		t.Errorf("attach_works %v, process %+v", r.Attach, r.Process)
	}
}

// TestUnprivileged runs this test binary as a user without capabilities.
func TestUnprivileged(t *testing.T) {
	const env = "UNFREED_DOCTOR_PID"
	var pid int
	if n, _ := fmt.Sscan(os.Getenv(env), &pid); n == 1 {
		fmt.Print(Text(check(t, pid), TextOptions{}))
		return
	}
	testutil.RequireRoot(t)
	target := testutil.Start(t, "sleep", "1000")
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	// Through a descriptor: the folder of a test binary is closed to others.
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestUnprivileged$")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", env, target.PID()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("running %v: %v\n%s", cmd, err, out)
	}
	for _, want := range []string{
		"user                    uid 65534",
		"missing   CAP_BPF                 not held",
		"unknown   uprobe links            could not be asked for",
		"why: looking into this process needs CAP_SYS_PTRACE",
		"try: run it with sudo",
		"Attach would not work: CAP_BPF: no BPF program can be loaded.",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestFeatures(t *testing.T) {
	plain := feature{id: "x", name: "X", feature: kfeature.Loop}
	special := feature{id: "x", name: "X", feature: kfeature.Loop, remedy: "wait"}
	for _, test := range []struct {
		feature feature
		err     error
		want    Finding
	}{
		{plain, nil, Finding{State: OK, Detail: "available"}},
		{plain, kfeature.ErrNotSupported, Finding{State: Missing, Detail: "not available", Reason: kfeature.Loop.Doc(), Remedy: newerKernel}},
		{special, kfeature.ErrNotSupported, Finding{State: Missing, Detail: "not available", Reason: kfeature.Loop.Doc(), Remedy: "wait"}},
		{plain, errors.New("no such thing"), Finding{State: Unknown, Detail: "could not be asked for", Reason: "no such thing"}},
		{plain, os.ErrPermission, Finding{State: Unknown, Detail: "could not be asked for",
			Reason: "loading a BPF program is not permitted", Remedy: "run it with sudo"}},
	} {
		test.want.ID, test.want.Name, test.want.Area, test.want.Required = "x", "X", Kernel, true
		if got := test.feature.finding(test.err); got != test.want {
			t.Errorf("%+v:\n got %+v\nwant %+v", test.feature, got, test.want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	all := kfeature.CapabilitySet(1<<41 - 1)
	for _, c := range capabilities {
		for _, test := range []struct {
			name    string
			held    kfeature.CapabilitySet
			outside bool
			want    State
		}{
			{"all", all, false, OK},
			{"it alone", 1 << c.number, false, OK},
			{"what stands for it", 1 << c.instead, false, OK},
			{"none", 0, false, map[bool]State{true: Missing, false: Degraded}[c.required]},
			{"all of a user namespace", all, true, map[bool]State{true: Missing, false: Degraded}[c.required]},
		} {
			f := c.check(test.held, test.outside)
			if f.State != test.want || (f.State == OK) != (f.Reason == "") || (f.State == OK) != (f.Remedy == "") {
				t.Errorf("%s with %s: %+v", c.id, test.name, f)
			}
		}
	}
}

func TestLockdown(t *testing.T) {
	for mode, want := range map[string]State{"": OK, "none": OK, "integrity": OK, "confidentiality": Missing} {
		if f := lockdown(mode); f.State != want || f.Detail == "" {
			t.Errorf("mode %q: %+v", mode, f)
		}
	}
}
