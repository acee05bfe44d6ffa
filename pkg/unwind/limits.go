// SPDX-License-Identifier: Apache-2.0

package unwind

// Limits on what a file may ask for. All files of a Debian desktop, of PyTorch
// 1.13 and 2.x and of CPython 3.6 to 3.14 stay below a third of each.
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
	// are about 20 MB (libtorch_cuda). The extractor holds about 14 times as
	// much while it works, at worst (three bytes give a 16-byte delta).
	maxFrames = 64 << 20

	// maxGoTable bounds .gopclntab: kubelet has 30 MB, cockroach 60.
	maxGoTable = 96 << 20

	// maxGoFiles and maxGoUnits bound the source files and the entries of
	// the compilation units' file lists, for each of which the extractor may
	// keep an entry of a Go map. Kubernetes has about 10,000 and 200,000.
	maxGoFiles = 1 << 20
	maxGoUnits = 1 << 22

	// maxGoSteps and maxGoBytes bound the stack pointer tables of all Go
	// functions together, since many functions may name the same table: a
	// step can become a delta of 16 bytes. The go command has 300,000 steps.
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
	// nine bytes for each function that is as long as a signal trampoline
	// (77 in libtorch_cpu), and a few strings.
	maxProbes     = 1 << 16
	maxProbeBytes = 4 << 20

	// maxPages bounds the highest code address to 4 GiB, so that the page
	// index takes at most 4 MB. The code models of both machines allow 2 GiB.
	maxPages = 1 << 20

	// maxRows and maxInfos bound the table: 128 MB and 0.8 MB. libtorch_cpu
	// has 0.8 million rows and 1,100 infos, which is the most of 4,900 files.
	maxRows  = 32 << 20
	maxInfos = 1 << 16
)
