// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// runModel traces a target that speaks model.h's protocol and compares what it
// says of its sites.
func runModel(t *testing.T, target *testutil.Target, o tracer.Options) *alloc.Snapshot {
	t.Helper()
	target.WaitLine("READY")
	s := startSession(t, target, o)
	target.Send("go")
	want := merged(said(t, target.WaitLine("SITES")))
	target.WaitLine("DONE")
	snap := finish(t, s)
	got := merged(traced(snap, want))
	kept := got[:0]
	for _, g := range got {
		if g.Site != "(none)" {
			kept = append(kept, g)
		}
	}
	if diff := gocmp.Diff(want, kept); diff != "" {
		t.Errorf("sites differ (-target +traced):\n%s", diff)
	}
	return snap
}

func source(name string) []string { return []string{"testdata/targets/c/" + name} }

// Programs that a tracer may trip over; each says what it does in its header.
func TestTargets(t *testing.T) {
	testutil.RequireBPF(t)
	tests := []struct {
		name  string
		build func(t *testing.T) *testutil.Target
	}{
		{"altstack", func(t *testing.T) *testutil.Target {
			return testutil.Start(t, testutil.BuildC(t, source("altstack.c"), "-fno-builtin"))
		}},
		{"longjmp out of malloc", func(t *testing.T) *testutil.Target {
			lib := preloadable(t, "bumpalloc.c", "libmimalloc.so.2")
			cmd := exec.Command(testutil.BuildC(t, source("longjmp.c"), "-fno-builtin"))
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib)
			return testutil.StartCmd(t, cmd)
		}},
		{"stack not present", func(t *testing.T) *testutil.Target {
			return testutil.Start(t, testutil.BuildC(t, source("pagedstack.c"), "-fno-builtin"))
		}},
		{"interposed layer", func(t *testing.T) *testutil.Target {
			lib := preloadable(t, "wrap.c", "libwrap.so")
			cmd := exec.Command(testutil.BuildC(t, source("simple.c"), "-fno-builtin"))
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib)
			return testutil.StartCmd(t, cmd)
		}},
		{"static", func(t *testing.T) *testutil.Target {
			return testutil.Start(t, testutil.BuildC(t, source("simple.c"), "-fno-builtin", "-static"))
		}},
		{"not PIE", func(t *testing.T) *testutil.Target {
			return testutil.Start(t, testutil.BuildC(t, source("simple.c"), "-fno-builtin", "-no-pie"))
		}},
		{"no frame pointers", func(t *testing.T) *testutil.Target {
			return testutil.Start(t, testutil.BuildC(t, source("simple.c"), "-fno-builtin", "-O3", "-fomit-frame-pointer"))
		}},
		{"another root", func(t *testing.T) *testutil.Target {
			root := t.TempDir()
			bin := testutil.BuildC(t, source("simple.c"), "-fno-builtin", "-static")
			image, err := os.ReadFile(bin)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "simple"), image, 0o755); err != nil {
				t.Fatal(err)
			}
			testutil.RequireTool(t, "chroot")
			return testutil.Start(t, "chroot", root, "/simple")
		}},
		{"another mount namespace", func(t *testing.T) *testutil.Target {
			testutil.RequireTool(t, "unshare")
			dir := t.TempDir()
			bin := testutil.BuildC(t, source("simple.c"), "-fno-builtin")
			// The program's name exists only in the target's namespace.
			return testutil.Start(t, "unshare", "-m", "--propagation", "private", "sh", "-c",
				"mount -t tmpfs tmpfs "+dir+" && cp "+bin+" "+dir+"/hidden && exec "+dir+"/hidden")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			requireComplete(t, runModel(t, test.build(t), tracer.Options{}))
		})
	}
}

// Debian's musl has no unwind information for what calls main, so stacks end
// there, which is said; everything else is as usual.
func TestMusl(t *testing.T) {
	testutil.RequireBPF(t)
	testutil.RequireTool(t, "musl-gcc")
	for _, flag := range []string{"-static", "-no-pie"} {
		target := testutil.Start(t, testutil.BuildWith(t, "musl-gcc", source("simple.c"), "-fno-builtin", flag))
		snap := runModel(t, target, tracer.Options{})
		if snap.Coverage.Incomplete() {
			t.Errorf("events lost: %+v", snap.Coverage.EventsLost)
		}
		if _, objects := inSite(snap, "main"); objects != 50 {
			t.Errorf("%s: %d objects in stacks that reach main, want 50", flag, objects)
		}
	}
}

// A vforked child runs in the target's memory. The kernel's filter leaves it
// out, so what it allocates there before it execs is not seen (and what it frees
// stays): the report says so. The parent's own calls are exact.
func TestVfork(t *testing.T) {
	testutil.RequireBPF(t)
	target := testutil.Start(t, testutil.BuildC(t, source("vforker.c"), "-fno-builtin"))
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{})
	target.Send("go")
	want := merged(said(t, target.WaitLine("SITES")))
	target.WaitLine("DONE")
	snap := finish(t, s)
	requireComplete(t, snap)
	for _, g := range traced(snap, want) {
		for _, w := range want {
			if g.Site == w.Site && g.Site == "in_parent" && g.Allocs != w.Allocs {
				t.Errorf("%d allocations of the parent, want %d", g.Allocs, w.Allocs)
			}
		}
	}
	if !strings.Contains(strings.Join(snap.Coverage.Notes, "\n"), "vfork") {
		t.Errorf("notes %q do not tell of vforked children", snap.Coverage.Notes)
	}
}

// preloadable builds a library under the name by which it is known.
func preloadable(t *testing.T, file, name string) string {
	t.Helper()
	built := testutil.BuildC(t, source(file), "-shared", "-fPIC", "-Wl,-soname,"+name, "-ldl")
	lib := filepath.Join(filepath.Dir(built), name)
	if err := os.Rename(built, lib); err != nil {
		t.Fatal(err)
	}
	return lib
}

// A program and its libraries that were deleted, or replaced by others of the
// same name, are traced by what is mapped.
func TestDeletedAndReplaced(t *testing.T) {
	testutil.RequireBPF(t)
	for _, replace := range []bool{false, true} {
		bin := testutil.BuildC(t, source("simple.c"), "-fno-builtin", "-static")
		target := testutil.Start(t, bin)
		target.WaitLine("READY")
		if err := os.Remove(bin); err != nil {
			t.Fatal(err)
		}
		if replace {
			if err := os.WriteFile(bin, []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		s := startSession(t, target, tracer.Options{})
		target.Send("go")
		want := merged(said(t, target.WaitLine("SITES")))
		target.WaitLine("DONE")
		snap := finish(t, s)
		if diff := gocmp.Diff(want, merged(traced(snap, want))); diff != "" {
			t.Errorf("replaced %v: sites differ (-target +traced):\n%s", replace, diff)
		}
	}
}

// A library loaded after attach is complete from its first allocation on: stacks
// through it that cannot be unwound yet are copied and unwound when it is known.
func TestLateLibrary(t *testing.T) {
	testutil.RequireBPF(t)
	lib := testutil.BuildC(t, source("latelib.c"), "-fno-builtin", "-shared", "-fPIC", "-fomit-frame-pointer")
	bin := testutil.BuildC(t, source("dlopen_late.c"), "-fno-builtin", "-ldl")
	target := testutil.Start(t, bin, lib)
	snap := runModel(t, target, tracer.Options{})
	requireComplete(t, snap)
	t.Logf("%d stacks complete, %d partial", snap.Coverage.StacksComplete, snap.Coverage.Partial())
}

// bySite adds up the functions of each site and leaves out what is in none.
func bySite(in []siteTotals) []siteTotals {
	var out []siteTotals
	for _, s := range in {
		s.Function = ""
		if s.Site != "(none)" {
			out = append(out, s)
		}
	}
	sortTotals(out)
	return merged(out)
}

// The functions of other allocators, under their own names and malloc's.
func TestAllocators(t *testing.T) {
	testutil.RequireBPF(t)
	bin := testutil.BuildC(t, []string{
		"testdata/targets/c/allfuncs.c", "testdata/targets/c/allfuncs_heap.c", "testdata/targets/c/allfuncs_maps.c",
	}, "-fno-builtin")
	for _, lib := range []string{"libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"} {
		t.Run(lib, func(t *testing.T) {
			path := filepath.Join("/usr/lib/x86_64-linux-gnu", lib)
			if _, err := os.Stat(path); err != nil {
				matches, _ := filepath.Glob(path + "*")
				if len(matches) == 0 {
					testutil.Skipf(t, "%s is not installed", lib)
				}
				path = matches[0]
			}
			cmd := exec.Command(bin, "start")
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+path)
			target := testutil.StartCmd(t, cmd)
			target.WaitLine("READY")
			s := startSession(t, target, tracer.Options{})
			target.Send("go")
			want := said(t, target.WaitLine("SITES"))
			target.WaitLine("DONE")
			snap := finish(t, s)
			// An allocator's functions are often one under several names, or
			// call each other: which of them is named is left open here.
			if diff := gocmp.Diff(bySite(want), bySite(traced(snap, want))); diff != "" {
				t.Errorf("sites differ (-target +traced):\n%s", diff)
			}
		})
	}
}

// A malloc in a signal handler that interrupted a malloc, on an alternate stack
// above: a probe at its return would end the target. It is left alone, which is
// said, and the others are exact.
func TestHandlerOnHigherStack(t *testing.T) {
	testutil.RequireBPF(t)
	if best, err := attach.Supported(); err != nil || best != attach.ModeSession {
		testutil.Skipf(t, "this kernel has no uprobe sessions, by which alone a return can be left alone")
	}
	lib := preloadable(t, "bumpalloc.c", "libmimalloc.so.2")
	cmd := exec.Command(testutil.BuildC(t, source("altinside.c"), "-fno-builtin"))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib)
	target := testutil.StartCmd(t, cmd)
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{})
	target.Send("go")
	want := merged(said(t, target.WaitLine("SITES")))
	target.WaitLine("DONE")
	snap := finish(t, s)
	for _, w := range want {
		if _, objects := inSite(snap, w.Site); w.Site != "in_handler" && objects != w.Objects {
			t.Errorf("%d objects of %s, want %d", objects, w.Site, w.Objects)
		}
	}
	lost := snap.Coverage.EventsLost
	if len(lost) != 1 || lost[0].Name != "signal_on_altstack" || lost[0].Count != 100 {
		t.Errorf("lost: %+v, want 100 calls on the alternate stack", lost)
	}
}

// A thread is no child.
func TestThreadsAreNoForks(t *testing.T) {
	testutil.RequireBPF(t)
	target := testutil.Start(t, testutil.BuildC(t, source("pagedstack.c"), "-fno-builtin"))
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{})
	target.Send("go") // begins a thread
	target.WaitLine("DONE")
	for _, note := range finish(t, s).Coverage.Notes {
		if strings.Contains(note, "forked") {
			t.Errorf("note %q of a target with threads only", note)
		}
	}
}

// realloc moves blocks whose old addresses another thread is given before it has
// returned.
func TestReallocRace(t *testing.T) {
	testutil.RequireBPF(t)
	target := testutil.Start(t, testutil.BuildC(t, source("moverace.c"), "-fno-builtin"))
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{})
	target.Send("go")
	want := said(t, target.WaitLine("SITES"))
	target.WaitLine("DONE")
	snap := finish(t, s)
	requireComplete(t, snap)
	for _, w := range want {
		if bytes, objects := inSite(snap, w.Site); bytes != w.Bytes || objects != w.Objects {
			t.Errorf("%s: %d bytes in %d objects, want %d in %d", w.Site, bytes, objects, w.Bytes, w.Objects)
		}
	}
	if n := snap.Coverage.FreesUnmatched; n != 0 {
		t.Errorf("%d unmatched frees, want none", n)
	}
}

// A C++ program that runs out of address space goes on to catch bad_alloc.
func TestNewFails(t *testing.T) {
	testutil.RequireBPF(t)
	bin := testutil.BuildC(t, source("newfails.cc"), "-fno-builtin")
	for _, lib := range []string{"libjemalloc.so.2", "libtcmalloc_minimal.so.4"} {
		t.Run(lib, func(t *testing.T) {
			path := filepath.Join("/usr/lib/x86_64-linux-gnu", lib)
			if _, err := os.Stat(path); err != nil {
				testutil.Skipf(t, "%s is not installed", lib)
			}
			cmd := exec.Command(bin)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+path)
			target := testutil.StartCmd(t, cmd)
			target.WaitLine("READY")
			s := startSession(t, target, tracer.Options{})
			target.Send("go")
			if line := target.WaitLine("CAUGHT"); line != "CAUGHT 20" {
				t.Errorf("the target said %q, want CAUGHT 20", line)
			}
			target.WaitLine("DONE")
			snap := finish(t, s)
			if _, objects := inSite(snap, "kept"); objects != 20 {
				t.Errorf("%d objects kept, want 20", objects)
			}
			for _, c := range snap.Coverage.EventsLost {
				if c.Name != "throwing_calls" {
					t.Errorf("lost: %+v", c)
				}
			}
		})
	}
}
