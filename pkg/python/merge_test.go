// SPDX-License-Identifier: Apache-2.0

package python

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// nativeStack makes native frames of names: "eval" is the eval function, a name
// with "Py" is CPython's own code, one with "green" the greenlet extension's.
func nativeStack(names string) []NativeFrame {
	var native []NativeFrame
	for _, name := range strings.Fields(names) {
		native = append(native, NativeFrame{
			Frames:      []alloc.Frame{{Function: name}},
			Eval:        name == "eval",
			Interpreter: name == "eval" || strings.Contains(name, "Py"),
		})
		if strings.Contains(name, "green") {
			native[len(native)-1].Frames[0].Mapping = &alloc.Mapping{File: "/lib/greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so"}
		}
	}
	return native
}

// pythonStack makes Python frames of names: "|" behind one marks an entry, "|"
// alone is a shim, "-" before one that it has not started, "?" is unknown code.
func pythonStack(names string) []Frame {
	var py []Frame
	for _, name := range strings.Fields(names) {
		f := Frame{Address: 1}
		name, f.Entry = strings.CutSuffix(name, "|")
		name, notStarted := strings.CutPrefix(name, "-")
		switch {
		case name == "": // a shim
		case name == "?":
		default:
			f.Code = &Code{Name: name}
			if notStarted {
				f.Offset = -2
			}
		}
		py = append(py, f)
	}
	return py
}

func names(frames []alloc.Frame) string {
	var out []string
	for _, f := range frames {
		name := f.Function
		if name == "" {
			name = "?"
		}
		if f.Interpreter {
			name = "(" + name + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestMerge(t *testing.T) {
	shim, entry := layouts[12], layouts[11]
	for _, tt := range []struct {
		name     string
		layout   *Layout
		native   string
		py       string
		opts     MergeOptions
		want     string
		mismatch Mismatch
		unknown  int
	}{
		{
			name: "one call of several frames", layout: &shim,
			native: "malloc_user PyCall eval PyRun main",
			py:     "f g h |",
			want:   "malloc_user f g h main",
		},
		{
			name: "a callback from C between two calls", layout: &shim,
			native: "ext eval PyVector sort eval PyRun main",
			py:     "key | f main.py |",
			want:   "ext key sort f main.py main",
		},
		{
			name: "3.11: the entry is the call's outermost frame", layout: &entry,
			native: "ext eval PyVector sort eval PyRun main",
			py:     "key g| f main.py|",
			want:   "ext key g sort f main.py main",
		},
		{
			name: "3.9: each frame is a call", layout: &entry,
			native: "ext eval PyVector eval PyRun main",
			py:     "f| g|",
			want:   "ext f g main",
		},
		{
			name: "a call that has returned to its shim", layout: &shim,
			native: "free PyDealloc eval PyVector eval main",
			py:     "| f |",
			want:   "free f main",
		},
		{
			name: "frames that have not started are left out", layout: &shim,
			native: "PyCell eval main",
			py:     "-new -init f |",
			want:   "f main",
		},
		{
			name: "unknown code keeps its place", layout: &shim,
			native: "ext eval main",
			py:     "f ? g |",
			want:   "ext f ? g main", unknown: 1,
		},
		{
			name: "keep the interpreter", layout: &shim,
			native: "PyMem eval PyVector ext eval PyRun main",
			py:     "f | g |",
			opts:   MergeOptions{KeepInterpreter: true},
			want:   "(PyMem) f (eval) (PyVector) ext g (eval) (PyRun) main",
		},
		{
			name: "drop native frames", layout: &shim,
			native: "ext eval PyVector ext eval main",
			py:     "f | g |",
			opts:   MergeOptions{DropNative: true},
			want:   "f g",
		},
		{
			name: "no Python at all", layout: &shim,
			native: "ext start_thread clone",
			opts:   MergeOptions{DropNative: true},
			want:   "ext start_thread clone",
		},
		{
			name: "the interpreter before its first frame", layout: &shim,
			native: "PyMem PyInit main",
			want:   "(PyMem) (PyInit) main",
		},
		{
			name: "no frame has started: keep the native ones", layout: &shim,
			native: "PyMem eval main",
			py:     "-f |",
			want:   "(PyMem) (eval) main",
		},
		{
			name: "Python frames are missing", layout: &shim,
			native: "ext eval PyRun main",
			want:   "ext (eval) (PyRun) main", mismatch: PythonMissing,
		},
		{
			name: "the native stack was cut", layout: &shim,
			native: "ext eval PyVector",
			py:     "f | g h | i |",
			want:   "ext f g h i", mismatch: NativeShort,
		},
		{
			name: "the Python chain was cut within a call", layout: &shim,
			native: "ext eval PyVector eval main",
			py:     "f | g h",
			want:   "ext f g h main",
		},
		{
			name: "the Python chain was cut between calls", layout: &shim,
			native: "ext eval ext eval ext eval main",
			py:     "f | g |",
			want:   "ext f ext g ext main", mismatch: PythonShort,
		},
		{
			name: "too deep: the leaf call has pushed no frame", layout: &entry,
			native: "PyErr " + recursionCheck + " eval PyVector eval PyRun eval main",
			py:     "f| g|",
			want:   "f g main",
		},
		{
			name: "too deep: the leaf call has pushed its frame", layout: &entry,
			native: "PyErr " + recursionCheck + " eval PyVector eval main",
			py:     "f| g|",
			want:   "f g main",
		},
		{
			name: "a greenlet ends where it began", layout: &shim,
			native: "ext eval PyVector eval green_boot green_switch PyVector eval PyRun main",
			py:     "f | g |",
			want:   "ext f g green_boot green_switch",
		},
		{
			name: "a greenlet without its native frames", layout: &shim,
			native: "ext eval green_boot eval main",
			py:     "f g |",
			opts:   MergeOptions{DropNative: true},
			want:   "f g",
		},
		{
			name: "a switch within the main greenlet", layout: &shim,
			native: "ext eval green_run PyVector eval PyRun main",
			py:     "f | g |",
			want:   "ext f green_run g main",
		},
		{
			name: "no native frames", layout: &shim,
			py:   "f | g |",
			want: "f g", mismatch: NativeShort,
		},
		{name: "nothing", layout: &shim},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Merge(tt.layout, nativeStack(tt.native), pythonStack(tt.py), tt.opts)
			if diff := cmp.Diff(tt.want, names(got.Frames)); diff != "" {
				t.Errorf("stack (-want +got):\n%s", diff)
			}
			if got.Mismatch != tt.mismatch || got.Unknown != tt.unknown {
				t.Errorf("mismatch = %q, unknown = %d, want %q, %d", got.Mismatch, got.Unknown, tt.mismatch, tt.unknown)
			}
		})
	}
}

// TestMergeInlined checks that a physical frame's inlined functions stay
// together and in order.
func TestMergeInlined(t *testing.T) {
	l := layouts[12]
	native := nativeStack("ext eval main")
	native[0].Frames = []alloc.Frame{{Function: "inner", Inlined: true}, {Function: "outer"}}
	native[1].Frames = []alloc.Frame{{Function: "_PyEval_EvalFrame", Inlined: true}, {Function: "eval"}}
	got := Merge(&l, native, pythonStack("f |"), MergeOptions{KeepInterpreter: true})
	if diff := cmp.Diff("inner outer f (_PyEval_EvalFrame) (eval) main", names(got.Frames)); diff != "" {
		t.Errorf("stack (-want +got):\n%s", diff)
	}
}
