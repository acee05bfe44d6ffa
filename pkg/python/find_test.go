// SPDX-License-Identifier: Apache-2.0

package python

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestFind(t *testing.T) {
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, "-c", "print('READY', flush=True); input()")
			target.WaitLine("READY")
			r, err := find(t, openProcess(t, target.PID()))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Version.String(); got != py.Version {
				t.Errorf("version = %s, want %s", got, py.Version)
			}
			if r.Embedded {
				t.Errorf("%q counts as a program that embeds an interpreter", r.Path)
			}
			for _, e := range r.EvalRanges {
				if !r.LibRange.Contains(e.Start) || !r.IsEval(e.End-1) {
					t.Errorf("eval range %x is odd, code is at %x", e, r.LibRange)
				}
			}
		})
	}
}

// busyFinds is how often a busy process is looked at.
const busyFinds = 50

// TestFindBusy checks that no change in a running process makes it look as if
// its layout were unknown.
func TestFindBusy(t *testing.T) {
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, py.File(t, "testdata/targets/python/busy.py"))
			target.WaitLine("READY")
			p := openProcess(t, target.PID())
			for range busyFinds {
				if _, err := find(t, p); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestCandidates(t *testing.T) {
	maps := []proc.Mapping{
		{Path: "/usr/bin/service", Inode: 1, Exec: true},
		{Path: "/usr/bin/service", Inode: 1, Write: true},
		{Path: "/lib/_heapq.cpython-311-x86_64-linux-gnu.so", Inode: 2, Exec: true},
		{Path: "/lib/libtorch_python.so", Inode: 3, Exec: true},
		{Path: "/lib/data", Inode: 4},
		{Path: "/lib/libpython3.11.so.1.0", Inode: 5, Exec: true},
		{Path: "/lib/libpython3.11.so.1.0", Inode: 5, Exec: true, Offset: 4096},
		{Path: "[vdso]", Exec: true},
		{Path: "/usr/bin/python3.11", Inode: 6, Exec: true},
		{Path: "/usr/bin/python3.11", Inode: 6, Dev: 1, Exec: true},
	}
	var got []uint64
	for _, c := range candidates(maps) {
		got = append(got, c.text.Inode)
	}
	if diff := cmp.Diff([]uint64{5, 6, 6, 1, 2, 3}, got); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}
