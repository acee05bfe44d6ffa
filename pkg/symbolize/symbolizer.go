// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Options says where else to look. The zero value uses what the mapped files
// themselves hold.
type Options struct {
	// OpenDebug opens a file of separate debug information by its absolute
	// path as the target sees it, such as /usr/lib/debug/.build-id/ab/cd.debug.
	// An error that is fs.ErrNotExist means that there is none. The symbolizer
	// closes the file. Nil: no such files are used.
	OpenDebug func(path string) (*os.File, error)
}

// Symbolizer finds the functions at addresses. It opens each file once, keeps
// it open until Close and remembers what it found. It is safe for concurrent
// use.
type Symbolizer struct {
	open    func(alloc.Mapping) (*os.File, error)
	options Options

	mu       sync.Mutex
	closed   bool
	mappings map[mappingKey]*lazyModule
	files    map[fileID]*module
	builds   map[string]*module // by build id
}

// mappingKey tells the files of mappings apart before they are opened. The
// address is part of it, since a file replaced by another of the same name is
// mapped elsewhere.
type mappingKey struct {
	file, buildID string
	start         uint64
}

// fileID is a file's identity while it is open.
type fileID struct{ dev, ino uint64 }

// lazyModule is a module to be opened by the first who asks.
type lazyModule struct {
	once sync.Once
	m    *module
}

// New returns a symbolizer. open opens the file of a mapping for reading; it is
// called about once for each file, from any goroutine, and the symbolizer
// closes what it returns. Mappings of equal build id are taken to be of equal
// files.
func New(open func(alloc.Mapping) (*os.File, error), options Options) *Symbolizer {
	return &Symbolizer{
		open:     open,
		options:  options,
		mappings: make(map[mappingKey]*lazyModule),
		files:    make(map[fileID]*module),
		builds:   make(map[string]*module),
	}
}

// Close closes the files. Frames goes on to return what was found before and
// knows no more.
func (s *Symbolizer) Close() error {
	s.mu.Lock()
	s.closed = true
	modules := s.modules()
	s.mu.Unlock()
	var errs []error
	for _, m := range modules {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}

// modules returns the opened files in the order of their paths.
func (s *Symbolizer) modules() []*module {
	seen := make(map[*module]bool)
	for _, l := range s.mappings {
		if l.m != nil {
			seen[l.m] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b *module) int {
		if a.path != b.path {
			if a.path < b.path {
				return -1
			}
			return 1
		}
		return a.serial - b.serial
	})
}

// Errors returns why names or lines may be missing: one error for each file
// that could not be opened or is broken, in the order of their paths.
func (s *Symbolizer) Errors() []error {
	s.mu.Lock()
	modules := s.modules()
	s.mu.Unlock()
	var errs []error
	for _, m := range modules {
		if err := m.problem(); err != nil {
			errs = append(errs, fmt.Errorf("symbolizing %q: %w", m.path, err))
		}
	}
	return errs
}

// Frames returns the functions at address addr of the target, which lies in
// mapping m: those inlined first, the one that has the code last and not marked
// Inlined. For a caller in a stack, addr is the return address minus one, so
// that it lies within the call.
//
// It never returns an empty slice. Where nothing is known, or m is nil, there is
// one frame with Address and Mapping alone. The slice is the caller's own; its
// frames point to m.
func (s *Symbolizer) Frames(addr uint64, m *alloc.Mapping) []alloc.Frame {
	unknown := []alloc.Frame{{Address: addr, Mapping: m}}
	if m == nil || addr < m.Start || addr >= m.End {
		return unknown
	}
	mod := s.module(m)
	if mod == nil {
		return unknown
	}
	found := mod.framesAt(addr - m.Start + m.Offset)
	if len(found) == 0 {
		return unknown
	}
	frames := slices.Clone(found)
	for i := range frames {
		frames[i].Address, frames[i].Mapping = addr, m
	}
	return frames
}

// module returns the file of a mapping, nil after Close.
func (s *Symbolizer) module(m *alloc.Mapping) *module {
	key := mappingKey{m.File, m.BuildID, m.Start}
	if m.BuildID != "" {
		key.start = 0
	}
	s.mu.Lock()
	l := s.mappings[key]
	if l == nil {
		if s.closed {
			s.mu.Unlock()
			return nil
		}
		l = &lazyModule{}
		s.mappings[key] = l
	}
	s.mu.Unlock()
	l.once.Do(func() {
		mod := s.openModule(*m)
		s.mu.Lock()
		l.m = mod
		s.mu.Unlock()
	})
	return l.m
}

// openModule opens the file of a mapping, or finds it among those open. A file
// that cannot be opened is a module without content.
func (s *Symbolizer) openModule(m alloc.Mapping) *module {
	if m.BuildID != "" {
		s.mu.Lock()
		mod := s.builds[m.BuildID]
		s.mu.Unlock()
		if mod != nil {
			return mod
		}
	}
	mod := &module{path: m.File, openDebug: s.options.OpenDebug, found: make(map[uint64][]alloc.Frame)}
	f, err := s.open(m)
	if err == nil && f == nil {
		err = errNoFile
	}
	var id fileID
	if err == nil {
		id, err = identify(f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mod.serial = len(s.mappings)
	if s.closed && err == nil {
		err = os.ErrClosed
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		mod.fail(err)
		return mod
	}
	if old := s.files[id]; old != nil {
		f.Close()
		mod = old
	} else {
		mod.setFile(f)
		s.files[id] = mod
	}
	if m.BuildID != "" {
		s.builds[m.BuildID] = mod
	}
	return mod
}

var errNoFile = errors.New("no file for the mapping")

// identify returns the identity of an open file.
func identify(f *os.File) (fileID, error) {
	st, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	if !st.Mode().IsRegular() {
		return fileID{}, fmt.Errorf("%s is not a regular file", st.Mode().Type())
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, errors.New("file without an inode")
	}
	return fileID{uint64(sys.Dev), sys.Ino}, nil
}
