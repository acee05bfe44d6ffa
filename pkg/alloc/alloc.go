// SPDX-License-Identifier: Apache-2.0

// Package alloc holds the domain values that every other stage speaks in: what
// an allocation function is, what a stack frame and an allocation site are, and
// what a finished observation looks like.
//
// It is the bottom layer: it imports nothing of the project, reads no file and
// knows no kernel. Values are plain data, safe to copy; slices inside them are
// shared and must be treated as read-only once a Snapshot has been handed out.
package alloc

import (
	"fmt"
	"time"
)

// Kind says what sort of memory an allocation function hands out.
type Kind uint8

// The kinds of memory. The numbers travel to the BPF programs and back, so
// they are append-only.
const (
	KindHost    Kind = iota // the C heap: malloc and friends
	KindMmap                // anonymous mmap made by the program itself
	KindDevice              // GPU device memory
	KindPinned              // page-locked host memory
	KindManaged             // unified memory, migrating between host and device
	KindVMM                 // physical device memory of the virtual memory API
	kindCount
)

var kindNames = [kindCount]string{"heap", "mmap", "device", "pinned", "managed", "vmm"}

// String returns the kind's name as it stands in profiles and reports.
func (k Kind) String() string {
	if k < kindCount {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// StackID identifies a stack: a 64-bit hash of its native and Python frames.
type StackID uint64

// Language of a frame.
type Language uint8

// The languages a frame can be written in.
const (
	Native Language = iota
	Python
)

// String returns the language's lower-case name.
func (l Language) String() string {
	if l == Python {
		return "python"
	}
	return "native"
}

// Mapping is a file mapped into the target.
type Mapping struct {
	Start, End uint64 // addresses in the target
	Offset     uint64 // file offset of Start
	File       string // path as the target sees it
	BuildID    string // lower-case hex, empty if the file has none
}

// Frame is one function of a stack. A physical native frame into which the
// compiler inlined others is several consecutive Frames of the same Address,
// the innermost first, all but the last with Inlined set.
type Frame struct {
	Function   string   // demangled name or Python qualname; empty if unknown
	SystemName string   // linker-level name where it differs from Function
	File       string   // source file; empty if unknown
	Line       int      // source line; 0 if unknown
	StartLine  int      // first line of the function; 0 if unknown
	Language   Language // Native or Python
	Inlined    bool     // inlined into the next Frame of the stack
	// Interpreter marks CPython's own C code (libpython or a static
	// interpreter), which reports fold away by default.
	Interpreter bool
	Address     uint64   // address in the target; 0 for Python frames
	Mapping     *Mapping // nil for Python frames and unmapped addresses
}

// Site is every allocation made by one function from one stack.
type Site struct {
	ID       StackID
	Function string  // the allocation function, "malloc"
	Kind     Kind    // what it hands out
	Stack    []Frame // leaf first, the caller of Function at index 0

	InUseBytes, InUseObjects int64         // outstanding now
	AllocBytes, AllocObjects int64         // allocated since attach
	OldestAge, NewestAge     time.Duration // of what is outstanding; 0 if nothing is
}

// Target describes the observed process.
type Target struct {
	PID       int      `json:"pid"`
	Command   []string `json:"command"`
	Exe       string   `json:"exe"`
	Python    string   `json:"python,omitempty"`            // version, "3.11.2"; empty if none
	PythonOff string   `json:"python_frames_off,omitempty"` // why Python frames are missing, empty if they are not
}

// Cause says why a stack is not complete or what else went missing.
type Cause struct {
	Name   string `json:"name"`   // stable identifier, "unknown_mapping"
	Detail string `json:"detail"` // one line for people
	Count  int64  `json:"count"`
}

// Coverage states what an observation saw and what it missed. Zero is perfect.
type Coverage struct {
	Allocations    int64    `json:"allocations"`     // calls captured, nested ones once
	Frees          int64    `json:"frees"`           // frees matched with an allocation
	StacksComplete int64    `json:"stacks_complete"` // captured stacks that reach the thread's start
	StacksPartial  []Cause  `json:"stacks_partial"`  // the others, by cause
	PythonMissing  []Cause  `json:"python_missing"`  // stacks with eval frames but no Python frames, by cause
	EventsLost     []Cause  `json:"events_lost"`     // anything that makes numbers wrong, by cause; empty = exact
	FreesUnmatched int64    `json:"frees_unmatched"` // frees of memory from before attach
	FailedCalls    int64    `json:"failed_calls"`    // allocation calls that returned failure
	Unsymbolized   int64    `json:"frames_without_symbol"`
	Frames         int64    `json:"frames"`          // frames reported, for the share of the line above
	Notes          []string `json:"notes,omitempty"` // anything else a reader must know
}

// Incomplete reports whether numbers may be wrong, not merely coarse.
func (c *Coverage) Incomplete() bool { return len(c.EventsLost) > 0 }

// Partial returns the number of stacks that do not reach the thread's start.
func (c *Coverage) Partial() int64 {
	var n int64
	for _, x := range c.StacksPartial {
		n += x.Count
	}
	return n
}

// Before is what the target held when unfreed came.
type Before struct {
	RSS            int64 `json:"rss_bytes"`        // resident set at attach
	RSSAtEnd       int64 `json:"rss_bytes_at_end"` // and at the end
	FreesUnmatched int64 `json:"frees_unmatched"`  // frees since then that matched nothing
	FreedBytes     int64 `json:"freed_bytes"`      // their bytes where the allocator's header tells, else 0
}

// Cost is what observing did to the target and to the machine.
type Cost struct {
	Hits           int64         `json:"probe_hits"`
	ProgramTime    time.Duration `json:"program_ns"` // estimated time in BPF programs
	TrapTime       time.Duration `json:"trap_ns"`    // estimated time in traps, from a calibration on this machine
	OwnRSS         int64         `json:"own_rss_bytes"`
	KernelMapBytes int64         `json:"kernel_map_bytes"`
	StartUp        time.Duration `json:"startup_ns"` // from start to first probe
}

// Snapshot is a finished observation: what reports and profiles are made of.
type Snapshot struct {
	Target      Target
	Start       time.Time     // of tracing
	Duration    time.Duration // of tracing
	Ended       string        // why it ended: "interrupted", "duration", "target exited (signal 9)", ...
	SampleBytes int64         // 1 = every allocation; else the mean sampling interval in bytes
	MinAge      time.Duration // sites hold only allocations at least this old
	Sites       []Site        // sorted: InUseBytes descending, then stack
	Before      Before
	Coverage    Coverage
	Cost        Cost
	Version     string // of unfreed
}

// InUse returns outstanding bytes and objects of one kind.
func (s *Snapshot) InUse(k Kind) (bytes, objects int64) {
	for i := range s.Sites {
		if s.Sites[i].Kind == k {
			bytes += s.Sites[i].InUseBytes
			objects += s.Sites[i].InUseObjects
		}
	}
	return bytes, objects
}
