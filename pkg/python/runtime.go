// SPDX-License-Identifier: Apache-2.0

package python

import "strings"

// Range is a half-open range of target addresses.
type Range struct{ Start, End uint64 }

// Contains reports whether a lies in r.
func (r Range) Contains(a uint64) bool { return a >= r.Start && a < r.End }

// Runtime is a CPython runtime found in a process. It is plain data, valid as
// long as the process does not exec, and safe for concurrent use.
type Runtime struct {
	Version Version
	// Path is the file that holds the interpreter, as the target sees it:
	// libpython, a static interpreter, or a program that embeds one.
	Path   string
	Layout Layout

	// RuntimeAddr is the address of _PyRuntime; the first interpreter is at
	// the address stored at RuntimeAddr+Layout.InterpretersHead.
	RuntimeAddr uint64

	// EvalRanges is the code of every function whose native frame owns Python
	// frames, with the parts that the compiler moved away from it. Sorted, not
	// overlapping.
	EvalRanges []Range

	// LibRange is the executable mapping of Path: CPython's own C code, and
	// where the interpreter is embedded that of the program around it.
	LibRange Range

	// Embedded says that Path is neither a libpython nor a python program, so
	// that LibRange holds code of other origin too.
	Embedded bool
}

// IsEval reports whether the native code at pc runs Python frames. For a caller
// pass the return address minus one.
func (r *Runtime) IsEval(pc uint64) bool {
	for _, e := range r.EvalRanges {
		if e.Contains(pc) {
			return true
		}
	}
	return false
}

// IsInterpreter reports whether the native code at pc, of the named function
// ("" if unknown), is CPython's own. In a program that embeds an interpreter
// only functions with CPython's prefixes are: a frame of the program must not
// be taken for the interpreter's.
func (r *Runtime) IsInterpreter(pc uint64, function string) bool {
	if !r.LibRange.Contains(pc) && !r.IsEval(pc) {
		return false
	}
	return !r.Embedded || r.IsEval(pc) || strings.HasPrefix(function, "Py") || strings.HasPrefix(function, "_Py")
}
