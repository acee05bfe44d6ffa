// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Sizes of the structures of an ELF64 file.
const (
	ehdrSize = 64
	phdrSize = 56
	shdrSize = 64
	symSize  = 24
	dynSize  = 16
	chdrSize = 24
)

// File is an ELF file of the 64-bit little-endian kind. It is safe for
// concurrent use. It holds no resource of its own, so there is no Close.
type File struct {
	r       io.ReaderAt
	size    uint64
	machine elf.Machine
	typ     elf.Type

	segments []Segment
	progs    []prog // all program headers
	sections []section

	buildID func() string
	dynamic func() (dynamic, error)
	symbols func() ([]Symbol, error)
	dynsyms func() ([]Symbol, error)
	funcs   func() (*FuncTable, error)
	frames  func() *frameIndex
	mini    func() (*File, error)
	isMini  bool // decompressed from another file's .gnu_debugdata
}

// Open reads the headers of the ELF file in r, which is size bytes long. It
// fails with [ErrNotELF], [ErrClass], [ErrCorrupt] or [ErrTooLarge], or with
// the reader's error. A file whose section table is unreadable but whose
// segments are sound opens without sections, since that is enough to run it.
//
// r must stay readable as long as the File is used.
func Open(r io.ReaderAt, size int64) (*File, error) {
	if size < 0 {
		return nil, fmt.Errorf("opening ELF file of %d bytes: %w", size, ErrCorrupt)
	}
	f := &File{r: r, size: uint64(size)}
	if f.size < ehdrSize {
		return nil, ErrNotELF
	}
	h, err := f.read(0, ehdrSize, ehdrSize)
	if err != nil {
		return nil, fmt.Errorf("reading the ELF header: %w", err)
	}
	if string(h[:4]) != elf.ELFMAG {
		return nil, ErrNotELF
	}
	if elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, ErrClass
	}
	f.typ = elf.Type(le.Uint16(h[16:]))
	f.machine = elf.Machine(le.Uint16(h[18:]))
	first, serr := f.readSections(h)
	if serr != nil {
		f.sections = nil
	}
	if err := f.readSegments(h, first); err != nil {
		return nil, fmt.Errorf("reading program headers: %w", err)
	}
	broken := errors.Is(serr, ErrCorrupt) || errors.Is(serr, ErrTooLarge)
	if serr != nil && (!broken || len(f.segments) == 0) {
		return nil, fmt.Errorf("reading section headers: %w", serr)
	}
	f.buildID = sync.OnceValue(f.findBuildID)
	f.dynamic = sync.OnceValues(f.readDynamic)
	f.symbols = sync.OnceValues(f.mergeSymbols)
	f.dynsyms = sync.OnceValues(f.readDynSymbols)
	f.funcs = sync.OnceValues(f.buildFuncTable)
	f.frames = sync.OnceValue(f.openFrameIndex)
	f.mini = sync.OnceValues(f.openMiniDebug)
	return f, nil
}

// Machine returns the instruction set of the file's code.
func (f *File) Machine() elf.Machine { return f.machine }

// Type returns the object file type, such as elf.ET_DYN.
func (f *File) Type() elf.Type { return f.typ }

var le = binary.LittleEndian

// span reports whether n bytes at off lie within the file.
func (f *File) span(off, n uint64) bool {
	return off <= f.size && n <= f.size-off
}

// read returns n bytes at off. It is the only place where memory is allocated
// by a size that the file states: n is checked against limit and the file.
func (f *File) read(off, n, limit uint64) ([]byte, error) {
	if n > limit {
		return nil, fmt.Errorf("%d bytes at %#x (limit %d): %w", n, off, limit, ErrTooLarge)
	}
	if !f.span(off, n) {
		return nil, fmt.Errorf("%d bytes at %#x of a file of %d: %w", n, off, f.size, ErrCorrupt)
	}
	b := make([]byte, n)
	if err := f.readInto(b, off); err != nil {
		return nil, err
	}
	return b, nil
}

// readInto fills b from off. The end of a file that has shrunk since Open is
// ErrCorrupt.
func (f *File) readInto(b []byte, off uint64) error {
	if !f.span(off, uint64(len(b))) {
		return fmt.Errorf("%d bytes at %#x of a file of %d: %w", len(b), off, f.size, ErrCorrupt)
	}
	n, err := f.r.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("file ends at %#x: %w", off+uint64(n), ErrCorrupt)
	}
	return err
}
