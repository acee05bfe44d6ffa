// SPDX-License-Identifier: Apache-2.0

// Package attach puts probes on the allocation functions of a running process:
// it finds which functions of the table of package alloc exist in which mapped
// files, chooses the instruction in each that is cheapest to probe, and makes
// the links to the BPF programs that it is given.
//
// It is three steps that can be used apart. A [Planner] matches mappings with
// the table and yields probes; [Place] works on bytes alone and chooses the
// instruction; an [Attacher] makes links. A library that is loaded later goes
// through the same steps again: Planner.Plan returns only what is new.
//
// The package reads the target's files, never its memory, and writes nothing.
// It knows no BPF object: programs come from the caller. The links are filtered
// to the target process and live as long as this process holds their
// descriptors, so the kernel takes every probe out again however it ends.
//
// A probe is put on the very file that is mapped, through a descriptor, so it
// holds also for deleted, replaced and unreachable files. These may be hostile:
// parsing them is package elfsym's, and what is done here with their content is
// bounded by the constants below.
package attach

const (
	// maxCode bounds the code read of one function, in bytes. The largest
	// function of the table that was seen, jemalloc's realloc, has 8 KiB; of a
	// longer one only the first part is searched for jumps into its prologue.
	maxCode = 32 << 10
	// unknownCode is how much is read of a function whose symbol has no size.
	unknownCode = 512
	// maxPrologue bounds the instructions walked in search of a probe point.
	// The longest useful walk seen, jemalloc's free, takes 11.
	maxPrologue = 32
	// maxRelocations bounds the PLT relocations of one file. libtorch_cpu has
	// 60,000.
	maxRelocations = 1 << 20
	// maxSymbolName is the longest name of interest behind a PLT entry; those
	// of the table are below 64 bytes.
	maxSymbolName = 128
)
