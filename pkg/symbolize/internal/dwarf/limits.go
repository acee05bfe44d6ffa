// SPDX-License-Identifier: Apache-2.0

package dwarf

const (
	// baseWork and workFactor bound how many bytes are read of one file's debug
	// information in all: a fixed part and a multiple of its size. Real use reads
	// each unit that it asks for once and then some 10 KB a lookup: the fixed part
	// alone lasts for 100,000 lookups, and takes some seconds to use up on purpose.
	baseWork   = 1 << 30
	workFactor = 16
	// maxUnits bounds the units of a file. Chromium has 60,000.
	maxUnits = 1 << 18
	// maxUnitSize bounds one unit. Link-time optimisation of a Rust program
	// makes a single unit of some 100 MB.
	maxUnitSize = 512 << 20
	// maxAbbrevs bounds the declarations of one abbreviation table. dwz and
	// link-time optimisation reach some 10,000.
	maxAbbrevs = 1 << 17
	// maxAbbrevAttrs bounds the attributes of one declaration. Compilers use
	// up to 30.
	maxAbbrevAttrs = 256
	// maxAbbrevTables is how many decoded tables are kept.
	maxAbbrevTables = 64
	// maxRanges bounds the address ranges of one unit, those of its functions
	// included: a million functions.
	maxRanges = 1 << 20
	// maxAllRanges bounds those of the units of a file together: 24 bytes
	// each, 96 MB.
	maxAllRanges = 4 << 20
	// maxReferences bounds a chain of abstract origins and specifications.
	// Compilers make chains of two, dwz of three.
	maxReferences = 16
	// maxInlineDepth bounds nested inlined calls. Template code reaches 60.
	maxInlineDepth = 256
	// maxString is the longest name or path. Linkage names of templates reach
	// some 20 KB.
	maxString = 64 << 10
	// maxLineFiles bounds the files or folders of a line program.
	maxLineFiles = 1 << 18
	// maxLineMarks bounds the marks kept of a line program, hence its rows to
	// a billion.
	maxLineMarks = 1 << 20
	// maxNames is how many resolved function names are kept.
	maxNames = 1 << 14
	// maxSpill is the largest section that is decompressed. Debian's debug
	// files of PyTorch have one of about 1 GB.
	maxSpill = 2 << 30
	// maxRatio is by how much a section may grow when decompressed. Debug
	// information shrinks to between a half and a tenth; deflate can claim
	// a thousand.
	maxRatio = 64
	// maxInMemory is the largest decompressed section kept in memory; larger
	// ones go to an unlinked temporary file.
	maxInMemory = 2 << 20
)
