// SPDX-License-Identifier: Apache-2.0

package python

import (
	"path"
	"slices"
	"strings"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// NativeFrame is one physical native frame: the functions inlined at its
// address and the function itself.
type NativeFrame struct {
	Frames      []alloc.Frame // innermost first, at least one
	Eval        bool          // Runtime.IsEval of its address
	Interpreter bool          // Runtime.IsInterpreter of its address
}

// Mismatch says in what way two stacks did not fit each other.
type Mismatch string

// The mismatches. They are names for coverage reports: do not change them.
const (
	// Matched: each eval frame got its Python frames, and all of them found one.
	Matched Mismatch = ""
	// PythonMissing: there are eval frames, but not one Python frame.
	PythonMissing Mismatch = "python_missing"
	// PythonShort: there are more eval frames than eval calls in the Python
	// chain. It happens where the chain was cut.
	PythonShort Mismatch = "python_short"
	// NativeShort: there are fewer. It happens where the native stack was cut.
	NativeShort Mismatch = "native_short"
)

// Merged is a stack of Python and native frames.
type Merged struct {
	Frames   []alloc.Frame // leaf first
	Mismatch Mismatch
	Unknown  int // Python frames whose code is unknown
}

// MergeOptions say what of a merged stack to keep. The zero value folds the
// interpreter and keeps other native frames.
type MergeOptions struct {
	KeepInterpreter bool // keep CPython's own C functions too
	DropNative      bool // keep no native frame
}

// recursionCheck is the function by which an eval call refuses to nest deeper.
// It runs, and may allocate an exception, before the eval call has pushed its
// frame (3.9, 3.10, 3.14).
const recursionCheck = "_Py_CheckRecursiveCall"

// Merge makes one stack of a thread's native and Python frames, both leaf first.
//
// Each native frame of the eval function is an eval call and owns the Python
// frames that it runs: from the leaf on up to and including the next entry. The
// Python frames take its place. Where the counts differ the stacks are aligned
// at the leaf, which is where the allocation is and where neither stack is ever
// cut; Python frames left over then follow at the end, eval frames left over
// stay native frames. A greenlet's stack ends where the greenlet does.
//
// CPython's own functions are left out unless asked for. A stack without Python
// frames is kept as it is, so that no allocation is left without a stack.
func Merge(l *Layout, native []NativeFrame, py []Frame, opts MergeOptions) Merged {
	m := merger{layout: l, opts: opts, rest: py}
	m.run(native, len(py) == 0)
	if !slices.ContainsFunc(m.out.Frames, isPython) && !m.whole {
		m = merger{layout: l, opts: opts, rest: py}
		m.run(native, true)
	}
	return m.out
}

func isPython(f alloc.Frame) bool { return f.Language == alloc.Python }

// merger is the state of one Merge.
type merger struct {
	layout *Layout
	opts   MergeOptions
	whole  bool    // keep all native frames
	rest   []Frame // Python frames not yet placed
	calls  int     // eval calls placed
	out    Merged
}

func (m *merger) run(native []NativeFrame, whole bool) {
	m.whole = whole
	empty := emptyEval(native, m.rest)
	unowned := 0  // eval frames for which no call was left
	greenlet := 0 // frames up to and including those of greenlet, behind the last call
	for i := range native {
		f := &native[i]
		if f.Eval && i != empty {
			owned := m.takeCall()
			switch {
			case owned:
				greenlet = 0
			case greenlet > 0: // what follows is another greenlet's
				m.out.Frames = m.out.Frames[:greenlet]
				return
			default:
				unowned++
			}
		}
		m.addNative(f)
		if isGreenlet(f) && m.calls > 0 {
			greenlet = len(m.out.Frames)
		}
	}
	switch {
	case unowned > 0 && m.calls == 0:
		m.out.Mismatch = PythonMissing
	case unowned > 0:
		m.out.Mismatch = PythonShort
	case len(m.rest) > 0:
		m.out.Mismatch = NativeShort
		for m.takeCall() {
		}
	}
}

// isGreenlet reports whether a frame is of the greenlet extension, which gives
// coroutines a C stack of their own on top of whatever stack started them. The
// Python chain of a greenlet ends where it began; the native frames behind are
// of another one that is suspended.
func isGreenlet(f *NativeFrame) bool {
	return slices.ContainsFunc(f.Frames, func(a alloc.Frame) bool {
		return a.Mapping != nil && strings.HasPrefix(path.Base(a.Mapping.File), "_greenlet.")
	})
}

// takeCall appends the Python frames of the next eval call, if there is one.
func (m *merger) takeCall() bool {
	if len(m.rest) == 0 {
		return false
	}
	n := callLength(m.rest)
	for i := range m.rest[:n] {
		m.addPython(&m.rest[i])
	}
	m.rest = m.rest[n:]
	m.calls++
	return true
}

// callLength returns how many frames, the leaf first, belong to one eval call.
func callLength(py []Frame) int {
	if i := slices.IndexFunc(py, func(f Frame) bool { return f.Entry }); i >= 0 {
		return i + 1
	}
	return len(py) // the chain was cut within the call
}

func (m *merger) addPython(f *Frame) {
	switch {
	case f.Entry && m.layout.EntryIsShim:
	case f.Code == nil:
		m.out.Unknown++
		m.out.Frames = append(m.out.Frames, alloc.Frame{Language: alloc.Python})
	case f.Code.Started(f.Offset):
		m.out.Frames = append(m.out.Frames, f.Code.Frame(f.Offset))
	}
}

func (m *merger) addNative(f *NativeFrame) {
	interpreter := f.Interpreter || f.Eval
	if !m.whole && (m.opts.DropNative || interpreter && !m.opts.KeepInterpreter) {
		return
	}
	for _, a := range f.Frames {
		a.Interpreter = interpreter
		m.out.Frames = append(m.out.Frames, a)
	}
}

// Frame returns the frame of a stack that executes c at a byte offset.
func (c *Code) Frame(offset int64) alloc.Frame {
	return alloc.Frame{
		Function:  c.Name,
		File:      c.File,
		Line:      c.Line(offset),
		StartLine: c.FirstLine,
		Language:  alloc.Python,
	}
}

// emptyEval returns the index of an eval frame at the leaf that has not pushed
// its Python frame yet and thus owns none, or -1. Without this, an exception of
// too deep recursion would shift every Python frame of its stack by one call.
func emptyEval(native []NativeFrame, py []Frame) int {
	leaf := slices.IndexFunc(native, func(f NativeFrame) bool { return f.Eval })
	if leaf < 1 || evalFrames(native) != evalCalls(py)+1 {
		return -1
	}
	callee := native[leaf-1].Frames
	if len(callee) == 0 || callee[len(callee)-1].Function != recursionCheck {
		return -1
	}
	return leaf
}

func evalFrames(native []NativeFrame) int {
	n := 0
	for i := range native {
		if native[i].Eval {
			n++
		}
	}
	return n
}

func evalCalls(py []Frame) int {
	n := 0
	for len(py) > 0 {
		py = py[callLength(py):]
		n++
	}
	return n
}
