// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
)

// ErrNoPlan means that a closed Planner was used.
var ErrNoPlan = errors.New("planner is closed")

// Opener opens the very file of a mapping for reading, as proc.Process's
// OpenMapping does. It is called from several goroutines.
type Opener func(proc.Mapping) (*os.File, error)

// File is a file mapped into the target in which functions are probed. It stays
// open until its Planner is closed.
type File struct {
	Path    string // as the target sees it
	BuildID string // lower-case hex; empty if it has none
	// GLIBC is set where the functions are glibc's own: memory that they hand
	// out has its chunk header in front.
	GLIBC bool

	file *os.File
}

// Probe is one function of the target and where it is to be probed.
type Probe struct {
	File      *File
	Row       int             // of Function in the table
	Function  *alloc.Function // shared: do not modify
	Vaddr     uint64          // of the function in the file
	Offset    uint64          // of the probed instruction in the file
	Placement Placement
	// Cookie is what the BPF programs get with each hit. Plan sets it to Row;
	// a caller may put more into its upper bits before it attaches the probe.
	Cookie uint64
}

// String names the probe for people.
func (p *Probe) String() string {
	return fmt.Sprintf("%s in %s at %v", p.Function.Name, p.File.Path, p.Placement)
}

// SkipCause says why a function, or a whole file, is not probed.
type SkipCause uint8

// The causes. Only with Unreadable, Indirect and Throws can something be missed.
const (
	SkipUnreadable SkipCause = iota + 1 // the file cannot be opened or parsed
	SkipLoader                          // the dynamic loader's own, used before libc is up
	SkipForwards                        // does nothing but jump to a function that is probed
	SkipIndirect                        // its address is chosen at run time (IFUNC)
	SkipUnmapped                        // its code is not mapped executable
	SkipThrows                          // a return probe would break its C++ exceptions
)

// Missed reports whether the cause can leave allocations or frees unseen.
func (c SkipCause) Missed() bool {
	return c == SkipUnreadable || c == SkipIndirect || c == SkipThrows
}

// Skip is a function that exists in the target and is not probed.
type Skip struct {
	File     string // path as the target sees it
	Function string // empty for all of the file
	Cause    SkipCause
	Detail   string // one clause for people
}

// String describes the skip for people.
func (s Skip) String() string {
	if s.Function == "" {
		return fmt.Sprintf("%s: %s", s.File, s.Detail)
	}
	return fmt.Sprintf("%s in %s: %s", s.Function, s.File, s.Detail)
}

// Planner finds the functions of a table in the files that a target has mapped.
// It remembers the files it has seen, so that planning again after a dlopen
// yields the new ones only. It is for one goroutine. Close releases the files.
type Planner struct {
	open  Opener
	match *matcher
	seen  map[fileID]bool // files that need no second look
	told  map[Skip]bool   // skips of files that are looked at again
	files []*File
	done  bool
}

// fileID identifies a mapped file. A file replaced under the same name is
// another one.
type fileID struct{ dev, inode uint64 }

// NewPlanner returns a planner for a target. The position of a function in the
// table is its row, see alloc.HostFunctions.
func NewPlanner(open Opener, table []alloc.Function) *Planner {
	return &Planner{
		open:  open,
		match: newMatcher(table),
		seen:  map[fileID]bool{},
		told:  map[Skip]bool{},
	}
}

// Plan returns a probe for each function of the table that a file defines which
// is mapped executable and was not planned before, and what it leaves out and
// why. Every file is taken: libc, a preloaded or statically linked allocator, an
// extension with one of its own. Where calls are nested, malloc in a malloc, both
// are probed, and the BPF programs count them once.
//
// Probes are in the order of the mappings, then of the table. A file that cannot
// be read is a Skip and is tried again by the next call. The only error is
// ErrNoPlan.
func (p *Planner) Plan(maps []proc.Mapping) ([]Probe, []Skip, error) {
	if p.done {
		return nil, nil, ErrNoPlan
	}
	todo := p.unseen(maps)
	results := make([]matched, len(todo))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(len(todo), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				results[i] = p.planFile(todo[i])
			}
		})
	}
	for i := range todo {
		next <- i
	}
	close(next)
	workers.Wait()

	var probes []Probe
	var skips []Skip
	for i, r := range results {
		if !r.again {
			p.seen[todo[i].id] = true
		}
		if r.file != nil {
			p.files = append(p.files, r.file)
		}
		probes = append(probes, r.probes...)
		for _, s := range r.skips {
			if !p.told[s] {
				skips = append(skips, s)
			}
			if r.again {
				p.told[s] = true
			}
		}
	}
	return probes, skips, nil
}

// Close releases the files of all plans. Links that were made with them stay.
// It is idempotent.
func (p *Planner) Close() error {
	p.done = true
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.file.Close())
	}
	p.files = nil
	return errors.Join(errs...)
}

// mappedFile is a file with its executable mappings.
type mappedFile struct {
	id   fileID
	maps []proc.Mapping
}

// covers reports whether the byte at a file offset is mapped executable.
func (m *mappedFile) covers(offset uint64) bool {
	for i := range m.maps {
		if mm := &m.maps[i]; offset >= mm.Offset && offset-mm.Offset < mm.End-mm.Start {
			return true
		}
	}
	return false
}

// unseen groups executable mappings by file, in the order of the first of each,
// and leaves out files that were planned.
func (p *Planner) unseen(maps []proc.Mapping) []mappedFile {
	var files []mappedFile
	index := map[fileID]int{}
	for _, m := range maps {
		id := fileID{m.Dev, m.Inode}
		if !m.Exec || !m.FileBacked() || p.seen[id] {
			continue
		}
		i, ok := index[id]
		if !ok {
			i = len(files)
			index[id] = i
			files = append(files, mappedFile{id: id})
		}
		files[i].maps = append(files[i].maps, m)
	}
	return files
}

// matched is what the planner found in one file.
type matched struct {
	file   *File // nil if nothing is probed
	probes []Probe
	skips  []Skip
	again  bool // worth another try with the next plan
}

// planFile looks into one file. What it opens is closed, or owned by the result.
func (p *Planner) planFile(m mappedFile) matched {
	path := m.maps[0].Path
	unreadable := func(err error, again bool) matched {
		return matched{again: again, skips: []Skip{{File: path, Cause: SkipUnreadable, Detail: err.Error()}}}
	}
	f, err := p.open(m.maps[0])
	switch {
	case errors.Is(err, proc.ErrNotRegular):
		return matched{} // a device has no functions
	case err != nil:
		return unreadable(err, true)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return unreadable(err, true)
	}
	image, err := elfsym.Open(f, st.Size())
	switch {
	case errors.Is(err, elfsym.ErrNotELF):
		f.Close()
		return matched{} // code of a JIT compiler, an image of another system
	case err != nil:
		f.Close()
		return unreadable(err, false)
	}
	file := &File{Path: path, BuildID: image.BuildID(), file: f}
	r, err := p.match.file(file, image, &m)
	if err != nil {
		r.skips = append(r.skips, Skip{File: path, Cause: SkipUnreadable, Detail: err.Error()})
	}
	if len(r.probes) == 0 {
		f.Close()
		return r
	}
	r.file = file
	return r
}
