// SPDX-License-Identifier: Apache-2.0

// Package tracer follows the allocations of one process: it is the one place
// that wires the target's files, the unwind tables, the BPF programs, the probes
// and the ring buffer into a running session, and turns what they know into a
// Snapshot.
//
// A Session goes through Start, any number of Status, and one Finish; Close
// frees everything and takes the probes out. While it runs two goroutines work:
// one reads the ring buffer (events.go) and is the only one that touches the
// stacks and the books of mappings until it has ended; one follows the address
// space (follow.go) when a library is loaded. The target's own allocations are
// paired in the kernel, so that neither of them can falsify a number by being
// slow.
//
// Nothing here writes to the target. If this process dies, the kernel removes
// the probes with its file descriptors.
package tracer
