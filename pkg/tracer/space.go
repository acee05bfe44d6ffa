// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
)

// region is an executable mapping of the target.
type region struct {
	start, end uint64
	bias       uint64 // target address - file-virtual address
	file       *file
	mapping    *alloc.Mapping
}

// view is the target's executable mappings at one moment. It is immutable.
type view struct {
	generation uint64
	regions    []region // sorted by start
	all        []proc.Mapping
}

// find returns the region that holds an address.
func (v *view) find(addr uint64) (*region, bool) {
	i := sort.Search(len(v.regions), func(i int) bool { return v.regions[i].end > addr })
	if i == len(v.regions) || addr < v.regions[i].start {
		return nil, false
	}
	return &v.regions[i], true
}

// keptViews is how many generations of the address space are remembered: a
// stack record names the one it was unwound with and is at most a ring buffer
// behind.
const keptViews = 64

// space follows the target's address space. Safe for concurrent use.
type space struct {
	p     *proc.Process
	files *files

	mu       sync.Mutex
	current  *view
	previous []*view
	mappings map[alloc.Mapping]*alloc.Mapping // one pointer for equal mappings
	owner    map[*alloc.Mapping]*file
	vdso     *file
}

func newSpace(p *proc.Process) *space {
	return &space{
		p: p, files: newFiles(p.OpenMapping),
		current:  &view{},
		mappings: map[alloc.Mapping]*alloc.Mapping{},
		owner:    map[*alloc.Mapping]*file{},
	}
}

// scan reads the mappings anew. The view has no generation yet, and is not the
// current one before use is called.
func (s *space) scan() (*view, error) {
	all, err := s.p.Maps()
	if err != nil {
		return nil, err
	}
	v := &view{all: all}
	for _, m := range all {
		if !m.Exec {
			continue
		}
		if r, ok := s.region(m); ok {
			v.regions = append(v.regions, r)
		}
	}
	return v, nil
}

func (s *space) region(m proc.Mapping) (region, bool) {
	var f *file
	switch {
	case m.Path == "[vdso]":
		f = s.vdsoFile(m)
	case m.FileBacked():
		f = s.files.get(m)
	default:
		return region{}, false // generated code, [vsyscall]
	}
	r := region{start: m.Start, end: m.End, file: f}
	am := alloc.Mapping{Start: m.Start, End: m.End, Offset: m.Offset, File: m.Path}
	if f.elf != nil {
		am.BuildID = f.elf.BuildID()
		r.bias = bias(f.elf, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.mappings[am]
	if !ok {
		p = &am
		s.mappings[am] = p
		s.owner[p] = f
	}
	r.mapping = p
	return r, true
}

// bias is the difference of target and file addresses in a mapping. The kernel
// maps whole pages, so the mapping may begin before its segment does.
func bias(f *elfsym.File, m proc.Mapping) uint64 {
	for _, s := range f.Segments() {
		if m.Offset+(m.End-m.Start) > s.Off && m.Offset < s.Off+s.Filesz && s.Flags&1 != 0 {
			return m.Start - m.Offset + s.Off - s.Vaddr
		}
	}
	return m.Start - m.Offset
}

// maxVDSO bounds the image read from the target; the kernel's has 2 pages.
const maxVDSO = 1 << 20

// vdsoFile reads the kernel's library from the target's memory: it is in no
// file system.
func (s *space) vdsoFile(m proc.Mapping) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vdso != nil {
		return s.vdso
	}
	f := &file{path: m.Path}
	s.vdso = f
	if m.End-m.Start > maxVDSO {
		f.err = fmt.Errorf("reading [vdso]: %d bytes are too many", m.End-m.Start)
		return f
	}
	image := make([]byte, m.End-m.Start)
	if _, err := s.p.ReadAt(image, int64(m.Start)); err != nil {
		f.err = fmt.Errorf("reading [vdso]: %w", err)
		return f
	}
	f.image = image
	f.elf, f.err = elfsym.Open(bytes.NewReader(image), int64(len(image)))
	return f
}

// use makes v the current view, with the generation the programs know it by.
func (s *space) use(v *view, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.generation = generation
	s.previous = append(s.previous, s.current)
	if len(s.previous) > keptViews {
		s.previous = slices.Delete(s.previous, 0, len(s.previous)-keptViews)
	}
	s.current = v
}

func (s *space) now() *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// at returns the view of a generation, or the oldest that is younger.
func (s *space) at(generation uint64) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.previous {
		if v.generation >= generation && v.generation > 0 {
			return v
		}
	}
	return s.current
}

// changed reports whether the executable mappings differ, and whether some
// address means something else than before.
func (v *view) changed(old *view) (any, meaning bool) {
	if len(v.regions) != len(old.regions) {
		any = true
	}
	for i := range v.regions {
		r := &v.regions[i]
		if o, ok := old.find(r.start); ok {
			if o.mapping != r.mapping {
				any = true
				meaning = meaning || o.file != r.file || o.bias != r.bias
			}
		} else {
			any = true
		}
	}
	return any, meaning
}

// openMapping opens the file of a resolved mapping for the symboliser, which
// closes it.
func (s *space) openMapping(m alloc.Mapping) (*os.File, error) {
	s.mu.Lock()
	p := s.mappings[m]
	f := s.owner[p]
	s.mu.Unlock()
	if f == nil || f.f == nil {
		return nil, fmt.Errorf("opening %q: %w", m.File, errNotMapped)
	}
	return f.reopen()
}

// openBeside opens a file of the target's root, such as one with debug
// information.
func (s *space) openBeside(path string) (*os.File, error) { return s.p.OpenInRoot(path) }

func (s *space) close() error { return s.files.close() }

var _ io.ReaderAt = (*proc.Process)(nil)
