// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/symbolize/internal/dwarf"
)

// maxFound is how many addresses of a file are remembered. Stacks of a large
// PyTorch service touch some 20,000 in all files.
const maxFound = 1 << 16

// module is a mapped file with its debug information.
type module struct {
	path      string
	serial    int
	openDebug func(string) (*os.File, error)

	load      sync.Once // main, debug and lines
	debug     *image    // of separate debug information, nil if there is none
	alternate *image    // of dwz, ditto
	lines     *dwarf.Data
	mini      func() *elfsym.File

	mu     sync.Mutex
	main   *image // nil once closed, or if it could not be opened
	err    error  // the first thing that went wrong
	found  map[uint64][]alloc.Frame
	closed bool
	use    sync.RWMutex // held for reading while files are read
}

// image is an open ELF file.
type image struct {
	*elfsym.File
	file *os.File
	path string
}

// openImage reads the headers of a file. On an error the file is closed.
func openImage(f *os.File, path string) (*image, error) {
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", st.Mode().Type())
	}
	var e *elfsym.File
	if err == nil {
		e, err = elfsym.Open(f, st.Size())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening %q: %w", path, err)
	}
	return &image{File: e, file: f, path: path}, nil
}

// setFile gives the module its file.
func (m *module) setFile(f *os.File) {
	img, err := openImage(f, m.path)
	if err != nil {
		m.fail(err)
		return
	}
	m.main = img
	m.mini = sync.OnceValue(func() *elfsym.File {
		f, err := img.MiniDebug()
		if err != nil {
			if !errors.Is(err, elfsym.ErrNoSection) {
				m.fail(err)
			}
			return nil
		}
		return f
	})
}

// fail keeps the first thing that went wrong.
func (m *module) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}

// problem returns why names or lines may be missing, nil for no reason known.
func (m *module) problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && m.lines != nil {
		return m.lines.Err()
	}
	return m.err
}

// close closes the files once nobody reads them.
func (m *module) close() error {
	m.use.Lock()
	defer m.use.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	var errs []error
	if m.lines != nil {
		errs = append(errs, m.lines.Close())
	}
	for _, img := range []*image{m.alternate, m.debug, m.main} {
		if img != nil {
			errs = append(errs, img.file.Close())
		}
	}
	return errors.Join(errs...)
}

// framesAt returns the functions at an offset of the file, none if there is
// nothing known. The result is shared.
func (m *module) framesAt(off uint64) []alloc.Frame {
	m.mu.Lock()
	frames, ok := m.found[off]
	m.mu.Unlock()
	if ok {
		return frames
	}
	m.use.RLock()
	defer m.use.RUnlock()
	if m.main == nil || m.closed {
		return nil
	}
	v, ok := m.main.OffsetToVaddr(off)
	if !ok {
		return nil
	}
	m.load.Do(m.loadDebug)
	frames = m.lookup(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.found) >= maxFound {
		clear(m.found)
	}
	m.found[off] = frames
	return frames
}

// loadDebug opens what tells lines: the file itself or its debug file.
func (m *module) loadDebug() {
	m.debug = m.findDebugFile()
	for _, img := range []*image{m.main, m.debug} {
		if img == nil {
			continue
		}
		d, err := dwarf.Open(img.File, func() (*elfsym.File, error) { return m.findAlternate(img) })
		if err == nil {
			m.mu.Lock()
			m.lines = d
			m.mu.Unlock()
			return
		}
		if !errors.Is(err, elfsym.ErrNoSection) {
			m.fail(fmt.Errorf("reading debug information of %q: %w", img.path, err))
		}
	}
}

// symbol returns the symbol at a virtual address: from the file itself, its
// mini debug information, or its debug file.
func (m *module) symbol(v uint64) (elfsym.Symbol, bool) {
	if s, ok := m.find(m.main.File, v); ok {
		return s, true
	}
	if mini := m.mini(); mini != nil {
		if s, ok := m.find(mini, v); ok {
			return s, true
		}
	}
	if m.debug != nil {
		return m.find(m.debug.File, v)
	}
	return elfsym.Symbol{}, false
}

func (m *module) find(f *elfsym.File, v uint64) (elfsym.Symbol, bool) {
	t, err := f.FuncTable()
	if err != nil {
		m.fail(fmt.Errorf("reading symbols: %w", err))
	}
	return t.Find(v, m.main.File)
}

// lookup returns the frames at a virtual address, without address and mapping.
func (m *module) lookup(v uint64) []alloc.Frame {
	var places []dwarf.Frame
	if m.lines != nil {
		places = m.lines.Lookup(v)
	}
	sym, ok := m.symbol(v)
	if len(places) == 0 {
		if !ok {
			return nil
		}
		places = []dwarf.Frame{{}}
	}
	frames := make([]alloc.Frame, len(places))
	for i, p := range places {
		f := &frames[i]
		f.Inlined = i < len(places)-1
		f.File, f.Line, f.StartLine = p.File, p.Line, p.Start
		f.Function, f.SystemName = names(p)
		if !f.Inlined && ok {
			f.Function, f.SystemName = readable(sym.Name), sym.Name
		}
		if f.SystemName == f.Function {
			f.SystemName = ""
		}
	}
	return frames
}

// names returns the readable and the linker-level name of a function that
// DWARF names.
func names(p dwarf.Frame) (function, system string) {
	if p.Linkage != "" {
		return readable(p.Linkage), p.Linkage
	}
	return p.Name, ""
}
