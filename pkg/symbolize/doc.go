// SPDX-License-Identifier: Apache-2.0

// Package symbolize turns code addresses of a process into functions and source
// lines.
//
// Names come from the symbol tables of the mapped file, from its mini debug
// information (.gnu_debugdata) and from the file of separate debug information
// that its build id or .gnu_debuglink names. Lines and inlined functions come
// from DWARF, where the mapped file or its debug file has it. C++ and Rust names
// are demangled in the short form that pprof shows: without parameters and
// template arguments.
//
// It opens files only through the functions that the caller hands in, so that
// they can be taken from the target's root, or from descriptors that outlive the
// target. It reads no process, writes nothing in the target's tree, and knows
// nothing of interpreters.
//
// The files belong to the target and are hostile input: see package elfsym. What
// cannot be read costs names, not more, and is told by [Symbolizer.Errors].
package symbolize
