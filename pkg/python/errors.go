// SPDX-License-Identifier: Apache-2.0

package python

import (
	"errors"
	"fmt"
)

var (
	// ErrNoPython says that no file mapped into the process holds a CPython
	// interpreter.
	ErrNoPython = errors.New("no CPython interpreter is mapped")

	// ErrNotStarted says that an interpreter is mapped but has no thread yet, or
	// none any more. Asking again later may succeed.
	ErrNotStarted = errors.New("the CPython interpreter is not running (still starting, or already finished)")
)

// UnsupportedError says that a CPython was found whose Python frames cannot be
// read. Native frames of the process can be.
type UnsupportedError struct {
	Version Version // zero if it could not be told
	Path    string  // file of the interpreter, as the target sees it
	Reason  string
}

// Error names the version and the reason.
func (e *UnsupportedError) Error() string {
	name := "CPython"
	if e.Version != (Version{}) {
		name += " " + e.Version.String()
	}
	return fmt.Sprintf("%s in %q is not supported: %s", name, e.Path, e.Reason)
}

// LayoutError says that a supported CPython's structures are not where those of
// its version are, as in a build with unusual options or with patches. Its
// Python frames cannot be read.
type LayoutError struct {
	Version Version
	Path    string
	Err     error // what did not fit
}

// Error names the version and what did not fit.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("CPython %s in %q has an unknown memory layout: %v", e.Version, e.Path, e.Err)
}

// Unwrap returns what did not fit.
func (e *LayoutError) Unwrap() error { return e.Err }
