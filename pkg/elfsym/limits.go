// SPDX-License-Identifier: Apache-2.0

package elfsym

import "errors"

// Errors that a caller can tell apart. All others are errors of the reader.
var (
	// ErrNotELF means that the file does not start as an ELF file does.
	ErrNotELF = errors.New("not an ELF file")
	// ErrClass means an ELF file of another word size or byte order than 64
	// bit little-endian.
	ErrClass = errors.New("not a 64-bit little-endian ELF file")
	// ErrCorrupt means that the file contradicts itself or ends too early.
	ErrCorrupt = errors.New("corrupt ELF file")
	// ErrTooLarge means that a part of the file is beyond a limit that no
	// real file reaches.
	ErrTooLarge = errors.New("part of the ELF file is beyond its limit")
	// ErrNoSection means that the file has no such section, or one without
	// content in the file.
	ErrNoSection = errors.New("no such section")
	// ErrNoSegment means that a virtual address is not in the file.
	ErrNoSegment = errors.New("address is in no segment of the file")
	// ErrCompressed means that a section must be decompressed first.
	ErrCompressed = errors.New("section is compressed")
)

// Limits on untrusted files. Each lies far above what is found in practice and
// low enough that reaching it on purpose costs an attacker's observer little.
const (
	// maxSegments: the kernel itself refuses more than 64 KiB of program
	// headers (fs/binfmt_elf.c, load_elf_phdrs), which is 1170.
	maxSegments = 1170
	// maxSections: the largest linked objects seen have a few hundred; a
	// relocatable one built with -ffunction-sections has tens of thousands.
	maxSections = 1 << 16
	// maxShstrtab: names of maxSections sections at 64 bytes each.
	maxShstrtab = 4 << 20
	// maxSection is the largest section read into memory as a whole. The
	// string table of libtorch_cuda is about 100 MB.
	maxSection = 256 << 20
	// maxSymbols is the largest number of symbols of one table. An unstripped
	// chromium has about 2 million; as table rows 8 million take 200 MB.
	maxSymbols = 8 << 20
	// maxName is the longest symbol name. Names of Boost and Eigen templates
	// reach some 20 KB.
	maxName = 64 << 10
	// maxChain bounds a walk through one bucket of a symbol hash table.
	// Linkers aim at fewer than four symbols a bucket.
	maxChain = 4096
	// maxNotes is the most that is read of a note section or segment.
	// libpython with DTrace support has 10 KB of SDT notes.
	maxNotes = 4 << 20
	// maxBuildID: SHA-1 makes 20 bytes, the longest in use (BLAKE3) 32.
	maxBuildID = 64
	// maxDebugLink: a file name is at most 255 bytes, behind it a build id.
	maxDebugLink = 1024
	// maxMiniDebug is the largest decompressed .gnu_debugdata. The largest of
	// Fedora's (LLVM) are below 10 MB.
	maxMiniDebug = 64 << 20
	// maxDynamic is the most that is read of PT_DYNAMIC: 1024 entries, an
	// object with a dependency on 1000 libraries.
	maxDynamic = 1024 * dynSize
)
