// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// IdentWords is the number of words at Layout.CodeIdent.
const IdentWords = IdentSize / 8

// CodeRecord is what was copied of a code object while a frame kept it alive:
// raw bytes, any of which may be cut short.
type CodeRecord struct {
	Address        uint64             // of the code object
	FirstLine      int32              // at Layout.CodeFirstLine
	FirstTraceable int32              // at Layout.CodeFirstTraceable; 0 if there is none
	Ident          [IdentWords]uint64 // at Layout.CodeIdent
	Filename       []byte             // the str object, from its start
	Qualname       []byte             // the str object, from its start
	LineTable      []byte             // the bytes object, from its start
}

// Code is a decoded code object. It is immutable and safe for concurrent use.
type Code struct {
	File      string // as the program gave it: absolute, relative, "<string>"
	Name      string // qualname; in 3.9 and 3.10 the bare name
	FirstLine int    // of the def, or of its first decorator

	// Partial says that the line table was cut, so that Line may not know.
	Partial bool

	// firstTraceable is the byte offset below which a frame is not yet seen by
	// tracebacks.
	firstTraceable int64
	lines          lineTable
}

// Line returns the line of the instruction at a byte offset (Layout.Offset), 0
// if it has none or the table is Partial. An offset before the first instruction
// is one of a frame that has not started: its line is the first.
func (c *Code) Line(offset int64) int {
	if offset < 0 {
		return c.FirstLine
	}
	return c.lines.at(offset)
}

// Started reports whether a traceback would show a frame of this code at a byte
// offset. A frame that is still being set up (its cells, its generator) is
// skipped, as is the helper frame by which 3.13 and later run __init__
// (_PyFrame_IsIncomplete in Include/internal/pycore_frame.h).
func (c *Code) Started(offset int64) bool { return offset >= c.firstTraceable }

// maxLineTable bounds the line table that is decoded: 1 MiB is the table of
// about 300,000 instructions, in one function.
const maxLineTable = 1 << 20

// DecodeCode decodes a record. mem, if it is not nil, is the target's memory:
// where the record was cut, lacks an object (empty), or has a str whose text is
// elsewhere, the rest is read there, provided that the code object still is the
// one recorded. It is safe for concurrent use.
func DecodeCode(l *Layout, rec *CodeRecord, mem Target) (*Code, error) {
	if mem != nil && !l.isAlive(rec, mem) {
		mem = nil
	}
	if mem != nil && (len(rec.Filename) == 0 || len(rec.Qualname) == 0 || len(rec.LineTable) == 0) {
		if again, err := ReadCode(l, mem, rec.Address); err == nil && again.Ident == rec.Ident {
			rec = again
		}
	}
	file, err := l.decodeString(rec.Filename, l.identWord(rec, l.CodeFilename), mem)
	if err != nil {
		return nil, fmt.Errorf("decoding the file name of code %#x: %w", rec.Address, err)
	}
	name, err := l.decodeString(rec.Qualname, l.identWord(rec, l.CodeQualname), mem)
	if err != nil {
		return nil, fmt.Errorf("decoding the name of code %#x: %w", rec.Address, err)
	}
	table, whole, err := l.bytesData(rec.LineTable, l.identWord(rec, l.CodeLineTable), mem)
	if err != nil {
		return nil, fmt.Errorf("decoding the line table of code %#x: %w", rec.Address, err)
	}
	if mem != nil && !l.isAlive(rec, mem) { // died while it was read
		return DecodeCode(l, rec, nil)
	}
	return &Code{
		File:           file,
		Name:           name,
		FirstLine:      int(max(rec.FirstLine, 0)),
		Partial:        !whole,
		firstTraceable: l.firstTraceable(rec),
		lines:          parseLines(l.LineFormat, table, rec.FirstLine, whole),
	}, nil
}

// firstTraceable converts the index into a byte offset. Where there is none
// (3.9, 3.10) every frame counts, also one at index -1.
func (l *Layout) firstTraceable(rec *CodeRecord) int64 {
	if l.CodeFirstTraceable == 0 {
		return -int64(l.InstrUnit)
	}
	return int64(max(rec.FirstTraceable, 0)) * codeUnit
}

// identWord returns the pointer at an offset of the code object.
func (l *Layout) identWord(rec *CodeRecord, off uint32) uint64 {
	if i := (off - l.CodeIdent) / 8; i < IdentWords {
		return rec.Ident[i]
	}
	return 0
}

// isAlive reports whether the code object is still the one recorded.
func (l *Layout) isAlive(rec *CodeRecord, mem Target) bool {
	var b [IdentSize]byte
	if readFull(mem, b[:], rec.Address+uint64(l.CodeIdent)) != nil {
		return false
	}
	for i, w := range rec.Ident {
		if binary.LittleEndian.Uint64(b[8*i:]) != w {
			return false
		}
	}
	return true
}

// bytesData returns the contents of a bytes object, and whether it is all of
// them.
func (l *Layout) bytesData(b []byte, addr uint64, mem Target) (data []byte, whole bool, err error) {
	if len(b) < int(max(l.BytesSize+8, l.BytesData)) {
		return nil, false, errors.New("not a bytes object: too short")
	}
	size := int64(binary.LittleEndian.Uint64(b[l.BytesSize:]))
	if size < 0 {
		return nil, false, fmt.Errorf("not a bytes object: its size is %d", size)
	}
	data = b[l.BytesData:]
	if int64(len(data)) >= size {
		return data[:size], true, nil
	}
	if mem != nil {
		rest := make([]byte, min(size, maxLineTable))
		if readFull(mem, rest, addr+uint64(l.BytesData)) == nil && bytes.HasPrefix(rest, data[:min(len(data), len(rest))]) {
			return rest, int64(len(rest)) == size, nil
		}
	}
	return data, false, nil
}

// readAhead is how much of a string or table is read before its size is known:
// nearly always all of it.
const readAhead = 512

// ReadCode records the code object at an address of the target, as the BPF
// programs do while it runs. The target should be stopped, or the code object
// kept alive by other means.
func ReadCode(l *Layout, mem Target, addr uint64) (*CodeRecord, error) {
	b := make([]byte, max(l.CodeIdent+IdentSize, l.CodeFirstLine+4, l.CodeFirstTraceable+4))
	if err := readFull(mem, b, addr); err != nil {
		return nil, fmt.Errorf("reading code object: %w", err)
	}
	rec := &CodeRecord{Address: addr, FirstLine: int32(binary.LittleEndian.Uint32(b[l.CodeFirstLine:]))}
	if l.CodeFirstTraceable != 0 {
		rec.FirstTraceable = int32(binary.LittleEndian.Uint32(b[l.CodeFirstTraceable:]))
	}
	for i := range rec.Ident {
		rec.Ident[i] = binary.LittleEndian.Uint64(b[int(l.CodeIdent)+8*i:])
	}
	for _, o := range []struct {
		dst *[]byte
		off uint32
	}{{&rec.Filename, l.CodeFilename}, {&rec.Qualname, l.CodeQualname}, {&rec.LineTable, l.CodeLineTable}} {
		obj, err := readObject(mem, l.identWord(rec, o.off))
		if err != nil {
			return nil, fmt.Errorf("reading an object of code object %#x: %w", addr, err)
		}
		*o.dst = obj
	}
	return rec, nil
}

// readObject reads an object's first bytes: less than readAhead where memory
// ends before.
func readObject(mem Target, addr uint64) ([]byte, error) {
	b := make([]byte, readAhead)
	if readFull(mem, b, addr) == nil {
		return b, nil
	}
	const page = 4096
	b = b[:min(readAhead, page-int(addr%page))]
	if err := readFull(mem, b, addr); err != nil {
		return nil, err
	}
	return b, nil
}
