// SPDX-License-Identifier: Apache-2.0

package python

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// embedded builds a program with a static interpreter in it, of the first
// CPython that comes with one.
func embedded(t *testing.T) string {
	t.Helper()
	const ask = "import sysconfig as s; print(s.get_paths()['include'], " +
		"s.get_config_var('LIBPL') + '/' + 'libpython' + s.get_config_var('LDVERSION') + '.a', " +
		"s.get_config_var('LIBS'), s.get_config_var('SYSLIBS'))"
	for _, py := range testutil.Pythons(t) {
		out, err := py.Command("-c", ask).Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 2 || py.Chroot != "" {
			continue
		}
		if _, err := os.Stat(fields[1]); err != nil {
			continue
		}
		flags := append([]string{"-isystem", fields[0], "-rdynamic"}, fields[1:]...)
		// Debian's own is not position independent: it has another one that is.
		if _, err := os.Stat(strings.TrimSuffix(fields[1], ".a") + "-pic.a"); err == nil {
			flags = append(flags, "-no-pie")
		}
		// What the builtin modules of Debian's libpython need.
		return testutil.BuildC(t, []string{"pkg/python/testdata/embed.c"}, append(flags, "-lexpat", "-lz")...)
	}
	testutil.Skipf(t, "a static libpython is missing (install python3-dev)")
	return ""
}

func TestFindEmbedded(t *testing.T) {
	path := embedded(t)
	target := testutil.Start(t, path)
	target.WaitLine("READY")
	p := openProcess(t, target.PID())
	r, err := find(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Embedded || filepath.Base(r.Path) != "embed" {
		t.Errorf("found %q, embedded = %v", r.Path, r.Embedded)
	}
	for _, tt := range []struct {
		pc       uint64
		function string
		want     bool
	}{
		{r.LibRange.Start, "PyObject_Call", true},
		{r.LibRange.Start, "_PyObject_Malloc", true},
		{r.LibRange.Start, "main", false},
		{r.LibRange.Start, "", false},
		{r.EvalRanges[0].Start, "", true},
		{r.LibRange.End, "PyObject_Call", false},
	} {
		if got := r.IsInterpreter(tt.pc, tt.function); got != tt.want {
			t.Errorf("IsInterpreter(%#x, %q) = %v", tt.pc, tt.function, got)
		}
	}
	wantWaiting(t, p, r)
}

// TestSecondInterpreter checks that of a thread with a state in two interpreters
// the one that runs is read.
func TestSecondInterpreter(t *testing.T) {
	target := testutil.Start(t, embedded(t), "second")
	target.WaitLine("READY")
	p := openProcess(t, target.PID())
	r, err := find(t, p)
	if err != nil {
		t.Fatal(err)
	}
	threads, err := r.Threads(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) != 2 || threads[0].Interpreter == threads[1].Interpreter || threads[0].ID != threads[1].ID {
		t.Errorf("threads = %+v, want one in two interpreters", threads)
	}
	wantWaiting(t, p, r)
}

// wantWaiting checks the stack of the target's only thread.
func wantWaiting(t *testing.T, p Target, r *Runtime) {
	t.Helper()
	threads, err := r.Threads(p)
	if err != nil {
		t.Fatal(err)
	}
	frames, err := ReadStack(p, r, threads[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	got := names(Merge(&r.Layout, nil, frames, MergeOptions{}).Frames)
	if got != "wait_here <module>" {
		t.Errorf("stack = %q", got)
	}
	if _, err := ReadStack(p, r, 1); !errors.Is(err, ErrNoThread) {
		t.Errorf("stack of a thread that is none: error = %v, want ErrNoThread", err)
	}
}
