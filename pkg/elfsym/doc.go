// SPDX-License-Identifier: Apache-2.0

// Package elfsym reads ELF files of a foreign process: segments, build id,
// symbols, unwind ranges of functions, SDT notes, and where the debug
// information of a stripped file is.
//
// Threat model: the files belong to the observed process, which may be hostile,
// and are read as root. Every count, size and offset in a file is checked
// against the file's size and against a limit of limits.go before memory is
// allocated or a loop is entered; a broken file yields a typed error or less
// data, never a panic and never an allocation out of proportion. That is why it
// does not stand on debug/elf, which its own documentation declares unfit for
// adversarial input.
//
// It is lazy: Open reads headers only, and looking up a name in a library of
// several hundred MB touches a few pages of its hash table. It reads only
// through the io.ReaderAt it was given, opens no file and writes nothing.
//
// A [File] is safe for concurrent use and does not own its reader: who opened
// the reader closes it, after the last use of the File.
//
// Layouts are those of the System V ABI, chapters 4 and 5 (ELF64), and of the
// Linux Standard Base 5.0, chapter 10 (.eh_frame, .gnu.hash by the binutils
// sources).
package elfsym
