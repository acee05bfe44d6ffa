// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// wantComplete is the least share of complete stacks on torch.
const wantComplete = 0.999

// On torch, with autograd's own threads, stacks are complete, Python and native
// frames fit each other, and what is kept is found at its line.
func TestTorch(t *testing.T) {
	testutil.RequireBPF(t)
	python := testutil.RequireTorch(t)
	script := testutil.Path(t, "testdata/targets/python/torch_train.py")
	target := testutil.Start(t, python, script)
	target.WaitLine("READY")
	s := startSession(t, target, tracer.Options{})
	target.Send("go")
	target.WaitLine("DONE")
	snap := finish(t, s)
	c := snap.Coverage
	if c.Incomplete() {
		t.Errorf("events lost: %+v", c.EventsLost)
	}
	all := c.StacksComplete + c.Partial()
	if share := float64(c.StacksComplete) / float64(all); share < wantComplete {
		t.Errorf("%d of %d stacks are complete: %.5f; partial: %+v", c.StacksComplete, all, share, c.StacksPartial)
	}
	if len(c.PythonMissing) > 0 {
		t.Errorf("Python frames missing: %+v", c.PythonMissing)
	}
	t.Logf("%d stacks, %d complete, %d sites, %.1f us of programs an allocation",
		all, c.StacksComplete, len(snap.Sites), float64(snap.Cost.ProgramTime.Nanoseconds())/1000/float64(c.Allocations))

	// 60 tensors of 128 bytes live on, and the line that keeps them is named.
	line := lineOf(t, script, "history.append(")
	var tensors int64
	for _, x := range snap.Sites {
		if x.InUseObjects == 60 && pythonLine(x.Stack, "train") == line {
			tensors++
		}
	}
	if tensors == 0 {
		t.Error("no site of 60 objects at the line that keeps the tensors")
	}
}

// lineOf is the number of the first line of a file that has a text.
func lineOf(t *testing.T, path, text string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		if strings.Contains(line, text) {
			return i + 1
		}
	}
	t.Fatalf("%q is not in %s", text, path)
	return 0
}

// pythonLine is the line of the innermost frame of a Python function.
func pythonLine(stack []alloc.Frame, function string) int {
	for _, f := range stack {
		if f.Language == alloc.Python && f.Function == function {
			return f.Line
		}
	}
	return 0
}

// A leak in an extension without symbols and frame pointers: the Python line, and
// the extension's file with the offset in it.
func TestExtension(t *testing.T) {
	testutil.RequireBPF(t)
	const script = `
import sys, tracemalloc
sys.path.insert(0, sys.argv[1])
import leaky
def handle(n):
    leaky.leak(n)
tracemalloc.start()
print("READY", flush=True)
sys.stdin.readline()
for _ in range(100):
    handle(10007)
    leaky.cached(5003)
print("TRACED", tracemalloc.get_traced_memory()[0], flush=True)
print("DONE", flush=True)
sys.stdin.readline()
`
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			dir := testutil.BuildExtension(t, py)
			target := py.Start(t, "-c", script, dir)
			target.WaitLine("READY")
			s := startSession(t, target, tracer.Options{})
			target.Send("go")
			target.WaitLine("DONE")
			snap := finish(t, s)
			requireComplete(t, snap)
			var leaked, cached int64
			for _, x := range snap.Sites {
				if len(x.Stack) < 2 || x.Stack[0].Mapping == nil ||
					!strings.HasPrefix(filepath.Base(x.Stack[0].Mapping.File), "leaky") {
					continue
				}
				if label := x.Stack[0].Label(); !strings.Contains(label, "leaky") || !strings.Contains(label, "+0x") {
					t.Errorf("the extension's frame reads %q, want its file and an offset", label)
				}
				if pythonLine(x.Stack, "handle") == 6 {
					leaked += x.InUseBytes
				} else {
					cached += x.InUseObjects
				}
			}
			if leaked != 100*10007 {
				t.Errorf("%d bytes leaked at the line, want %d", leaked, 100*10007)
			}
			if cached != 64 {
				t.Errorf("%d objects in the cache, want 64", cached)
			}
		})
	}
}
