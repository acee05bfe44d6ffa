// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// checkpoint is a line that testdata/targets/python/checkpoints prints.
type checkpoint struct {
	N     int       `json:"n"`
	Name  string    `json:"name"`
	Size  int64     `json:"size"`
	Stack []pyFrame `json:"stack"`
}

type pyFrame struct {
	Function, File string
	Line           int
}

// UnmarshalJSON reads [function, file, line]; a frame between lines has none.
func (f *pyFrame) UnmarshalJSON(b []byte) error {
	var line *int
	if err := json.Unmarshal(b, &[]any{&f.Function, &f.File, &line}); err != nil {
		return err
	}
	if line != nil {
		f.Line = *line
	}
	return nil
}

// wantCheckpoints is how many situations each version must have gone through.
const wantCheckpoints = 30

// The merged stack at each checkpoint must be what the target's own traceback
// says, and its native part must reach the thread's start.
func TestPythonCheckpoints(t *testing.T) {
	testutil.RequireBPF(t)
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, filepath.Join(py.Dir(t, "testdata/targets/python/checkpoints"), "main.py"), "run")
			target.WaitLine("READY")
			s := startSession(t, target, tracer.Options{})
			target.Send("go")
			target.WaitLine("DONE")
			snap := finish(t, s)
			requireShallow(t, py.Minor, snap)
			if snap.Target.PythonOff != "" {
				t.Fatalf("no Python frames: %s", snap.Target.PythonOff)
			}
			bySize := map[int64]*alloc.Site{}
			for i := range snap.Sites {
				x := &snap.Sites[i]
				if x.InUseObjects == 1 && x.Function == "malloc" {
					bySize[x.InUseBytes] = x
				}
			}
			n := 0
			for _, line := range strings.Split(target.Output(), "\n") {
				if !strings.HasPrefix(line, "{") {
					continue
				}
				var c checkpoint
				if err := json.Unmarshal([]byte(line), &c); err != nil {
					t.Fatalf("reading %q: %v", line, err)
				}
				n++
				if c.Name == deadName {
					continue
				}
				compareCheckpoint(t, &c, bySize[c.Size])
			}
			if n < wantCheckpoints {
				t.Errorf("the target reached %d checkpoints, want %d or more", n, wantCheckpoints)
			}
		})
	}
}

// deadName is the situation whose function is named by an instance of a
// subclass of str: its text lies in memory of its own, which is gone when user
// space looks for it.
const deadName = "name_of_a_str_subclass"

// requireShallow is requireComplete but for the native frames of deep
// recursion, which before 3.11 took native frames for each Python one.
func requireShallow(t *testing.T, minor int, snap *alloc.Snapshot) {
	t.Helper()
	if snap.Coverage.Incomplete() {
		t.Errorf("events lost: %+v", snap.Coverage.EventsLost)
	}
	for _, c := range snap.Coverage.StacksPartial {
		if minor >= 11 || c.Name != "too_deep" {
			t.Errorf("partial stacks: %+v", c)
		}
	}
}

// maxPythonFrames and maxNativeFrames are what the programs keep of a stack.
const (
	maxPythonFrames = 256
	maxNativeFrames = 256
)

func compareCheckpoint(t *testing.T, c *checkpoint, site *alloc.Site) {
	t.Helper()
	if site == nil {
		t.Errorf("%s: no allocation of %d bytes", c.Name, c.Size)
		return
	}
	var got []pyFrame
	for _, f := range site.Stack {
		if f.Language == alloc.Python {
			got = append(got, pyFrame{f.Function, f.File, f.Line})
		}
	}
	// The frames of mark and of what it calls are not in the target's word.
	if i := slices.IndexFunc(got, func(f pyFrame) bool { return f.Function == "mark" }); i >= 0 {
		got = got[i+1:]
	}
	want := c.Stack
	if len(got) >= maxPythonFrames-4 && len(want) > len(got) {
		want = want[:len(got)] // too deep, which the coverage says
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s: stack differs (-target +traced):\n%s", c.Name, diff)
	}
}

// A thread that runs one interpreter inside another has a state in each: the
// frames are those of the inner one.
func TestSecondInterpreter(t *testing.T) {
	testutil.RequireBPF(t)
	for _, py := range testutil.Pythons(t) {
		if py.Minor < 11 || py.Chroot != "" {
			continue // extension modules of a minimal system lack there
		}
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, py.File(t, "testdata/targets/python/subinterpreter.py"))
			target.WaitLine("READY")
			s := startSession(t, target, tracer.Options{})
			target.Send("go")
			target.WaitLine("DONE")
			snap := finish(t, s)
			requireComplete(t, snap)
			// bytearray allocates one byte more, for a closing zero.
			if bytes, objects := inSite(snap, "in_second"); objects < 50 || bytes < 50*30011 {
				t.Errorf("%d bytes in %d objects in the second interpreter, want %d in 50", bytes, objects, 50*30011)
			}
			if bytes, objects := inSite(snap, "in_first"); objects < 40 || bytes < 40*50021 {
				t.Errorf("%d bytes in %d objects in the first interpreter, want %d in 40", bytes, objects, 40*50021)
			}
		})
	}
}
