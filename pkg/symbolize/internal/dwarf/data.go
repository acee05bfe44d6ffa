// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

// Data is the debug information of one file.
type Data struct {
	mu   sync.Mutex
	work int64 // what may still be read
	err  error // the first thing found broken

	info, abbrev, line, lineStrs, strs, strOffs, addr, oldRanges, rngLists *source
	spilled                                                                []io.Closer

	openAlt   func() (*elfsym.File, error)
	alt       *Data
	altErr    error
	altOpened bool

	heads       []unitHead
	units       map[int]*unit // by index in heads
	indexed     bool
	byAddr      index // ref is an index in heads
	abbrevCache map[abbrevKey]*abbrevs
	names       map[uint64]funcName
	programs    map[uint64]*program // by offset in .debug_line
}

// Frame is a function at an address.
type Frame struct {
	Name    string // as in the source, without its scope; empty if unknown
	Linkage string // mangled; empty if the compiler stated none
	File    string // path; empty if unknown
	Line    int    // 0 if unknown
	Start   int    // line of the function's declaration; 0 if unknown
}

// Open reads the unit headers of a file's debug information. It fails with
// [elfsym.ErrNoSection] if the file has none. alt opens the supplementary file
// of dwz, and is called at most once, when something refers to it; it may be
// nil, and may return nil for a file that is not there.
//
// The files must stay readable until Close.
func Open(f *elfsym.File, alt func() (*elfsym.File, error)) (*Data, error) {
	d := &Data{
		work:        baseWork,
		openAlt:     alt,
		units:       make(map[int]*unit),
		abbrevCache: make(map[abbrevKey]*abbrevs),
		names:       make(map[uint64]funcName),
		programs:    make(map[uint64]*program),
	}
	for _, s := range []struct {
		name string
		p    **source
	}{
		{".debug_info", &d.info},
		{".debug_abbrev", &d.abbrev},
		{".debug_line", &d.line},
		{".debug_line_str", &d.lineStrs},
		{".debug_str", &d.strs},
		{".debug_str_offsets", &d.strOffs},
		{".debug_addr", &d.addr},
		{".debug_ranges", &d.oldRanges},
		{".debug_rnglists", &d.rngLists},
	} {
		src, closer, err := openSource(f, s.name, &d.work)
		if closer != nil {
			d.spilled = append(d.spilled, closer)
		}
		if err != nil {
			d.Close()
			return nil, err
		}
		*s.p = src
	}
	d.work += workFactor * int64(d.info.size+d.line.size)
	if d.info.size == 0 {
		d.Close()
		return nil, fmt.Errorf(".debug_info: %w", elfsym.ErrNoSection)
	}
	if err := d.readHeads(); err != nil {
		if len(d.heads) == 0 {
			d.Close()
			return nil, fmt.Errorf("reading unit headers: %w", err)
		}
		d.keep(err)
	}
	return d, nil
}

// Close removes what Open decompressed. The Data must not be used afterwards.
func (d *Data) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if d.alt != nil {
		errs = append(errs, d.alt.Close())
	}
	for _, c := range d.spilled {
		errs = append(errs, c.Close())
	}
	d.spilled, d.alt = nil, nil
	return errors.Join(errs...)
}

// Err returns the first thing that was found broken. Lookups go on with what
// is sound.
func (d *Data) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *Data) keep(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *Data) budgetSpent() bool { return d.work < 0 }

// Lookup returns the functions at a virtual address, those inlined into others
// first, the one that has the code last. Where only the line is known, as in
// assembly code, there is one frame without names. It returns none for an
// address of which the file knows nothing.
func (d *Data) Lookup(pc uint64) []Frame {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.indexed {
		d.indexed = true
		if err := d.indexUnits(); err != nil {
			d.keep(err)
		}
	}
	r, ok := d.byAddr.find(pc)
	if !ok || d.budgetSpent() {
		return nil
	}
	frames, err := d.lookup(int(r.ref), pc)
	if err != nil {
		d.keep(err)
	}
	return frames
}

func (d *Data) lookup(i int, pc uint64) ([]Frame, error) {
	u, err := d.unit(i)
	if err != nil {
		return nil, err
	}
	calls, err := d.chain(u, pc)
	if err != nil {
		d.keep(err)
	}
	p, err := d.program(u)
	if err != nil {
		d.keep(err)
	}
	file, line := d.position(u, p, pc)
	if len(calls) == 0 {
		if file == "" {
			return nil, nil
		}
		return []Frame{{File: file, Line: line}}, nil
	}
	frames := make([]Frame, 0, len(calls))
	for j := len(calls) - 1; j >= 0; j-- {
		n, err := d.funcName(calls[j].off)
		if err != nil {
			d.keep(err)
		}
		frames = append(frames, Frame{Name: n.name, Linkage: n.linkage, File: file, Line: line, Start: n.line})
		file, line = d.fileName(u, p, calls[j].callFile), calls[j].callLine
	}
	return frames, nil
}

// alternate returns the supplementary file, nil if it is not there.
func (d *Data) alternate() (*Data, error) {
	if !d.altOpened {
		d.altOpened = true
		d.alt, d.altErr = d.openAlternate()
	}
	return d.alt, d.altErr
}

func (d *Data) openAlternate() (*Data, error) {
	if d.openAlt == nil {
		return nil, nil
	}
	f, err := d.openAlt()
	if err != nil || f == nil {
		return nil, err
	}
	alt, err := Open(f, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the supplementary debug file: %w", err)
	}
	return alt, nil
}

// altText returns a string for the file that this is the supplement of.
func (d *Data) altText(off uint64) (string, error) { return d.strs.str(off) }
