// SPDX-License-Identifier: Apache-2.0

// Package python knows CPython 3.9 to 3.14 as seen from outside: where an
// interpreter lies in a process, at which offsets its structures keep what a
// stack needs, how to turn a code object's bytes into names and lines, and how
// the Python and the native stack of one thread become one.
//
// It owns every fact about CPython of this project; the BPF programs and the
// tracer get them as the plain numbers of a Layout and branch on no version.
// It reads a target only through the io.ReaderAt and the opened ELF files that
// its caller hands in, never writes to it, and keeps no state.
//
// Everything read from a target is untrusted: chains may be cyclic, lengths
// absurd and pointers wild. Walks are bounded, reads are checked, and what does
// not fit is an error or a reported cause, never a guess.
package python
