// SPDX-License-Identifier: Apache-2.0

// Package unwind turns the call frame information of an ELF file into the rows
// that the BPF unwinder walks: for each code address, how to find the caller's
// stack pointer, return address and frame pointer.
//
// One [Table] describes one file, in file-virtual addresses, so that it is
// independent of where the file is mapped, can be shared by all processes and
// be copied into BPF array maps as it is. [Table.Lookup] is the reference for
// the lookup that the BPF program does; [Info] documents what a row means, and
// [Step] does what it says, for stacks that are unwound in user space.
//
// Reading .eh_frame, .debug_frame and .gopclntab is the work of package
// elfunwindinfo of go.opentelemetry.io/ebpf-profiler. The package owns what
// stands before it (image.go: a bounded, immutable view of a file that nobody
// vouches for), after it (pack.go: sorting, merging and packing) and beside it
// (cache.go: tables kept on disk).
//
// # Threat model
//
// The ELF file belongs to the traced process, which may be hostile, and is
// read by root. A file can make its own table wrong or refused, and no more:
// nothing here panics, follows a path named by the file, maps the file (a
// truncated mapping raises SIGBUS), or allocates without a limit (limits.go
// gives each with its reason). A file cannot make the cached table of another
// file wrong: see [Cache].
//
// The package reads the files it is given and, through a Cache, one directory.
// It starts no goroutine and keeps no global state; everything but the
// building of a single Table is safe for concurrent use.
package unwind
