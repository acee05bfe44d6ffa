// SPDX-License-Identifier: Apache-2.0

// Package profile turns a finished observation into a pprof profile of
// outstanding memory.
//
// It is a pure function of alloc.Snapshot: it opens no file, knows no kernel,
// and gives byte-identical output for equal input. What is said here about the
// shape of the profile is a promise to those who read it with other tools.
//
// One profile holds one memory space. A sample has the four values of
// runtime/pprof's heap profile in the same order (alloc_objects, alloc_space,
// inuse_objects, inuse_space; the last is the default), so that every tool that
// knows Go's heap profiles knows these. In sampled mode all are unbiased
// estimates and Period is the mean number of bytes between samples, else 1.
//
// A stack starts at a location without address or mapping that stands for the
// allocation function. Native locations have the address in the target and
// their mapping with its build id; compilers' inlining is several lines of one
// location, the innermost first. Python locations have neither address nor
// mapping; their functions have the qualified name, the file and the first
// line, and no system name: pprof takes a name equal to its system name for
// mangled, and would strip "<module>" to nothing.
//
// A native frame without symbol is a function named for its file and offset,
// as locations without lines vanish from pprof's flame graph. For the same
// reason all mappings claim HasFunctions: pprof would otherwise look the
// addresses of a stripped library up in what symbols it has left and present
// the nearest as the truth. `pprof -symbolize=force` with unstripped files at
// hand, matched by build id, does better and still works.
//
// Every sample has a label "memory" with the kind of memory. The heap space
// holds malloc's memory ("heap") and the anonymous mappings that the program
// made itself ("mmap") in one view, for CPython takes the arenas of its small
// objects by mmap: without them the most common growth of a Python program
// would be invisible. Nothing is in both, as mappings that an allocator makes
// to serve malloc are not recorded. Mappings are address space, though, which
// may not be resident; -tagfocus=memory=heap looks at the heap alone. A process
// has no label, as it would be the same in every sample: it is in the comments.
package profile

import (
	"fmt"
	"io"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Space is a memory space, for each of which there is a profile of its own.
type Space uint8

// The memory spaces.
const (
	Heap Space = iota // host memory: the C heap and anonymous mappings
)

// String returns the space's name as it stands in file names.
func (s Space) String() string {
	if s == Heap {
		return "heap"
	}
	return fmt.Sprintf("space(%d)", uint8(s))
}

// kinds returns what belongs to the space.
func (s Space) kinds() []alloc.Kind {
	if s == Heap {
		return []alloc.Kind{alloc.KindHost, alloc.KindMmap}
	}
	return nil
}

// Build returns the profile of one memory space. The view decides which frames
// a stack keeps; no view loses a byte, since a stack of which nothing is left
// keeps its allocation function. The profile passes CheckValid.
func Build(s *alloc.Snapshot, space Space, view alloc.View) (*pprof.Profile, error) {
	kinds := space.kinds()
	sites := slices.DeleteFunc(slices.Clone(s.Sites), func(x alloc.Site) bool {
		return !slices.Contains(kinds, x.Kind)
	})
	b := newBuilder(s.Target.Exe)
	sites = view.Sites(sites)
	b.mappings(sites)
	for i := range sites {
		b.sample(&sites[i])
	}
	p := b.p
	p.SampleType = []*pprof.ValueType{
		{Type: "alloc_objects", Unit: "count"},
		{Type: "alloc_space", Unit: "bytes"},
		{Type: "inuse_objects", Unit: "count"},
		{Type: "inuse_space", Unit: "bytes"},
	}
	p.DefaultSampleType = "inuse_space"
	p.PeriodType = &pprof.ValueType{Type: "space", Unit: "bytes"}
	p.Period = max(s.SampleBytes, 1)
	p.TimeNanos = s.Start.UnixNano()
	p.DurationNanos = s.Duration.Nanoseconds()
	p.Comments = comments(s, kinds)
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("checking the %s profile: %w", space, err)
	}
	return p, nil
}

// Write writes the profile of one memory space to w, gzipped as pprof's tools
// expect it.
func Write(w io.Writer, s *alloc.Snapshot, space Space, view alloc.View) error {
	p, err := Build(s, space, view)
	if err != nil {
		return err
	}
	if err := p.Write(w); err != nil {
		return fmt.Errorf("writing the %s profile: %w", space, err)
	}
	return nil
}
