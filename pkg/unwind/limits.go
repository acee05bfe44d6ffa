// SPDX-License-Identifier: Apache-2.0

package unwind

// Limits on what a file may ask for, set by the largest of 4,900 files: Debian
// with several compilers, PyTorch 1.13 and 2.15, CPython 3.6 to 3.14.
const (
	// maxSegments bounds the program headers. Linkers write about a dozen;
	// the kernel refuses to run more than 64 KiB of them (1170).
	maxSegments = 1170

	// maxSections is the format's own bound (SHN_LORESERVE), 4 MB to read.
	maxSections = 0xff00

	// maxNames bounds .shstrtab, of which linkers write under 1 KiB. Names
	// beyond it are not found.
	maxNames = 1 << 20

	// maxFrames bounds each of .eh_frame and .debug_frame. The largest known
	// has 18 MB (libtorch_cpu 2.15). Made as dense as can be, so that three
	// bytes give a delta of 16, 64 MB take 550 MB and 3 s.
	maxFrames = 64 << 20

	// maxGoTable bounds .gopclntab to what the extractor reads of one. One
	// larger file is known, a plugin of terraform of 186 MB.
	maxGoTable = 128 << 20

	// maxGoFiles and maxGoUnits bound the source files and the entries of
	// the compilation units' file lists, for each of which the extractor may
	// keep an entry of a Go map.
	maxGoFiles = 1 << 20
	maxGoUnits = 1 << 22

	// maxGoSteps and maxGoBytes bound the stack pointer tables of all Go
	// functions together, since many functions may name the same table: a
	// step can become a delta of 16 bytes.
	maxGoSteps = 1 << 23
	maxGoBytes = 256 << 20

	// maxDynamic bounds PT_DYNAMIC, read for the file's own name. Linkers
	// write under 1 KiB.
	maxDynamic = 1 << 20

	// maxBuildInfo bounds .go.buildinfo, which holds the list of modules.
	maxBuildInfo = 1 << 20

	// maxServed bounds the bytes that the extractor reads of one file, so
	// that a file of FDEs that each make it parse a huge CIE anew ends within
	// five seconds. Honest files are read once, and 1 KiB more for a CIE.
	maxServed = 512 << 20

	// maxProbes and maxProbeBytes bound the reads outside the frame sections:
	// nine bytes for each function that is as long as a signal trampoline (77
	// in libtorch_cpu, but a quarter of a million functions may be), and a
	// few strings.
	maxProbes     = 1 << 18
	maxProbeBytes = 4 << 20

	// maxPages bounds the highest code address to 4 GiB, so that the page
	// index takes at most 4 MB. The code models of both machines allow 2 GiB.
	maxPages = 1 << 20

	// maxRows and maxInfos bound the table: 128 MB and 0.8 MB. libtorch_cpu
	// 2.15 has most, 1.7 million rows and 2,400 infos.
	maxRows  = 32 << 20
	maxInfos = 1 << 16
)
