// SPDX-License-Identifier: Apache-2.0

package python

import "fmt"

// Version is a CPython version, as in PY_VERSION_HEX.
type Version struct {
	Major, Minor, Micro uint8
	Level               uint8 // 0xA alpha, 0xB beta, 0xC release candidate, 0xF final
	Serial              uint8 // of the alpha, beta or candidate
}

// String returns the version as Python writes it: "3.11.2", "3.14.0rc1".
func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
	switch v.Level {
	case 0xA:
		s += fmt.Sprintf("a%d", v.Serial)
	case 0xB:
		s += fmt.Sprintf("b%d", v.Serial)
	case 0xC:
		s += fmt.Sprintf("rc%d", v.Serial)
	}
	return s
}

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
	// where the interpreter is static or embedded that of the program.
	LibRange Range
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
