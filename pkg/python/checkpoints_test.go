// SPDX-License-Identifier: Apache-2.0

package python

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// checkpoint is a line that testdata/targets/python/checkpoints prints.
type checkpoint struct {
	N      int
	Name   string
	Thread uint64
	Size   uint64
	Stack  []pyFrame
}

// pyFrame is a frame as Python itself tells it.
type pyFrame struct {
	Function string
	File     string
	Line     int
}

func (f *pyFrame) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.Function, &f.File, &f.Line})
}

// wantCheckpoints is how many situations the script has at least: a test that
// silently ran through none would prove nothing.
const wantCheckpoints = 80

// TestReadStack compares what is read from outside with what Python says of its
// own stack, in every situation and version.
func TestReadStack(t *testing.T) {
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, filepath.Join(py.Dir(t, "testdata/targets/python/checkpoints"), "main.py"), "pause")
			var r *Runtime
			p := openProcess(t, target.PID())
			n := 0
			for ; ; n++ {
				line := target.WaitLine("")
				if line == "DONE" {
					break
				}
				if r == nil {
					var err error
					if r, err = find(t, p); err != nil {
						t.Fatal(err)
					}
				}
				var c checkpoint
				if err := json.Unmarshal([]byte(line), &c); err != nil {
					t.Fatalf("parsing %q: %v", line, err)
				}
				t.Run(c.Name, func(t *testing.T) { compareStack(t, p, r, &c) })
				target.Send("")
			}
			if n < wantCheckpoints {
				t.Errorf("the target reached %d checkpoints, want %d or more", n, wantCheckpoints)
			}
		})
	}
}

func compareStack(t *testing.T, p *proc.Process, r *Runtime, c *checkpoint) {
	frames, err := ReadStack(p, r, c.Thread)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if shim := f.Entry && r.Layout.EntryIsShim; (f.Code == nil) != shim {
			t.Errorf("frame %d: code = %v, shim = %v", i, f.Code, shim)
		}
	}
	if last := frames[len(frames)-1]; !last.Entry {
		t.Errorf("the outermost frame is not an entry: %+v", last)
	}
	got := toPython(Merge(&r.Layout, nil, frames, MergeOptions{}).Frames)
	if len(got) == 0 || got[0].Function != "mark" {
		t.Fatalf("the stack begins with %+v, want mark", got[:min(len(got), 3)])
	}
	if diff := cmp.Diff(c.Stack, got[1:]); diff != "" {
		t.Errorf("stack (-Python's own +read):\n%s", diff)
	}
}

func toPython(frames []alloc.Frame) []pyFrame {
	var out []pyFrame
	for _, f := range frames {
		out = append(out, pyFrame{strings.ToValidUTF8(f.Function, "?"), f.File, f.Line})
	}
	return out
}
