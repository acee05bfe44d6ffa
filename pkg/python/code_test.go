// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// memory is a target's memory: pieces at addresses.
type memory map[uint64][]byte

func (m memory) ReadAt(b []byte, addr int64) (int, error) {
	for start, piece := range m {
		if off := uint64(addr) - start; off < uint64(len(piece)) {
			if n := copy(b, piece[off:]); n < len(b) {
				return n, io.ErrUnexpectedEOF
			}
			return len(b), nil
		}
	}
	return 0, errors.New("bad address")
}

// put appends a little-endian number at an offset of b, growing it.
func put[T uint32 | uint64](b []byte, off uint32, v T) []byte {
	size := uint32(binary.Size(v))
	if n := off + size; uint32(len(b)) < n {
		b = append(b, make([]byte, n-uint32(len(b)))...)
	}
	if size == 4 {
		binary.LittleEndian.PutUint32(b[off:], uint32(v))
	} else {
		binary.LittleEndian.PutUint64(b[off:], uint64(v))
	}
	return b
}

// encode lays out code points of the width that a str of the text has.
func encode(text string) (data []byte, width int) {
	width = 1
	for _, r := range text {
		switch {
		case r > 0xffff:
			width = 4
		case r > 0xff:
			width = max(width, 2)
		}
	}
	for _, r := range text {
		switch width {
		case 1:
			data = append(data, byte(r))
		case 2:
			data = binary.LittleEndian.AppendUint16(data, uint16(r))
		default:
			data = binary.LittleEndian.AppendUint32(data, uint32(r))
		}
	}
	return data, width
}

// strBytes makes a compact str object.
func strBytes(l *Layout, text string) []byte {
	data, width := encode(text)
	state, off := uint32(width)<<stateKindShift|stateCompact, l.CompactData
	if strings.IndexFunc(text, func(r rune) bool { return r > 0x7f }) < 0 {
		state, off = state|stateASCII, l.AsciiData
	}
	b := make([]byte, max(off, l.LegacyData+8))
	b = put(b, l.UnicodeLength, uint64(utf8.RuneCountInString(text)))
	b = put(b, l.UnicodeState, state)
	return append(b[:off:off], append(data, make([]byte, 16)...)...)
}

// legacyBytes makes a str object whose data is at an address.
func legacyBytes(l *Layout, text string, at uint64) (object, data []byte) {
	data, width := encode(text)
	object = put(nil, l.LegacyData, at)
	object = put(object, l.UnicodeLength, uint64(utf8.RuneCountInString(text)))
	return put(object, l.UnicodeState, uint32(width)<<stateKindShift), data
}

// bytesObject makes a bytes object.
func bytesObject(l *Layout, data []byte) []byte {
	b := put(make([]byte, l.BytesData), l.BytesSize, uint64(len(data)))
	return append(b, data...)
}

func eachLayout(t *testing.T, fn func(t *testing.T, l *Layout)) {
	for minor := uint8(minMinor); minor <= maxMinor; minor++ {
		l := layouts[minor]
		t.Run(Version{Major: 3, Minor: minor, Level: 0xf}.String(), func(t *testing.T) { fn(t, &l) })
	}
}

func TestDecodeCodeStrings(t *testing.T) {
	for _, text := range []string{"", "f", "C.f.<locals>.<lambda>", "naïve", "функция", "漢字", "𠀀😀", "/tmp/é/x.py", strings.Repeat("x", 500)} {
		eachLayout(t, func(t *testing.T, l *Layout) {
			rec := &CodeRecord{
				FirstLine: 7, Filename: strBytes(l, text), Qualname: strBytes(l, text+"()"),
				LineTable: bytesObject(l, nil),
			}
			c, err := DecodeCode(l, rec, nil)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if c.File != text || c.Name != text+"()" || c.FirstLine != 7 || c.Partial {
				t.Errorf("decoded %q as %+v", text, c)
			}
		})
	}
}

// TestDecodeCodeRest checks that what a record lacks is marked without the
// target's memory, and read with it.
func TestDecodeCodeRest(t *testing.T) {
	const codeAt, fileAt, nameAt, dataAt, tableAt = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
	eachLayout(t, func(t *testing.T, l *Layout) {
		file := strings.Repeat("/ü", 1000)
		name, nameData := legacyBytes(l, "näme", dataAt)
		table := bytes.Repeat([]byte{0x80, 0}, 5000) // two entries or two pairs
		rec := &CodeRecord{
			Address: codeAt, FirstLine: 1,
			Filename: strBytes(l, file)[:512], Qualname: name, LineTable: bytesObject(l, table)[:4096],
		}
		for off, at := range map[uint32]uint64{l.CodeFilename: fileAt, l.CodeQualname: nameAt, l.CodeLineTable: tableAt} {
			rec.Ident[(off-l.CodeIdent)/8] = at
		}
		var ident []byte
		for i, w := range rec.Ident {
			ident = put(ident, uint32(8*i), w)
		}
		mem := memory{
			codeAt + uint64(l.CodeIdent): ident, fileAt: strBytes(l, file), dataAt: nameData,
			tableAt: bytesObject(l, table),
		}

		c, err := DecodeCode(l, rec, mem)
		if err != nil {
			t.Fatal(err)
		}
		if c.File != file || c.Name != "näme" || c.Partial {
			t.Errorf("with memory: file = %d bytes, name = %q, partial = %v", len(c.File), c.Name, c.Partial)
		}

		// Objects that could not be read at all when the frame was seen.
		mem[codeAt] = append(put(make([]byte, l.CodeIdent), l.CodeFirstLine, uint32(1))[:l.CodeIdent], ident...)
		mem[codeAt] = append(mem[codeAt], make([]byte, 64)...)
		delete(mem, codeAt+uint64(l.CodeIdent))
		mem[nameAt] = append(name, make([]byte, 512)...)
		bare := &CodeRecord{Address: codeAt, FirstLine: 1, Ident: rec.Ident}
		if c, err := DecodeCode(l, bare, mem); err != nil || c.File != file || c.Name != "näme" || c.Partial {
			t.Errorf("without objects: %v", err)
		}

		ident = mem[codeAt][l.CodeIdent:]
		put(ident, 0, ^rec.Ident[0]) // another code object is there now
		for name, mem := range map[string]Target{"without memory": nil, "object died": mem} {
			c, err := DecodeCode(l, rec, mem)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(c.File, cut) || !strings.HasPrefix(file, strings.TrimSuffix(c.File, cut)) {
				t.Errorf("%s: file = %q, want a part of it and %q", name, c.File, cut)
			}
			if c.Name != cut || !c.Partial {
				t.Errorf("%s: name = %q, partial = %v, want %q and true", name, c.Name, c.Partial, cut)
			}
		}
	})
}

func TestDecodeCodeErrors(t *testing.T) {
	eachLayout(t, func(t *testing.T, l *Layout) {
		good := CodeRecord{Filename: strBytes(l, "f.py"), Qualname: strBytes(l, "f"), LineTable: bytesObject(l, nil)}
		for name, spoil := range map[string]func(r *CodeRecord){
			"no file name": func(r *CodeRecord) { r.Filename = nil },
			"short name":   func(r *CodeRecord) { r.Qualname = r.Qualname[:l.UnicodeState] },
			"no data pointer": func(r *CodeRecord) {
				r.Qualname = put(r.Qualname[:l.LegacyData:l.LegacyData], l.UnicodeState, uint32(1<<stateKindShift))
			},
			"no line table":      func(r *CodeRecord) { r.LineTable = nil },
			"kind of string":     func(r *CodeRecord) { r.Filename = put(r.Filename, l.UnicodeState, uint32(3<<stateKindShift)) },
			"negative length":    func(r *CodeRecord) { r.Qualname = put(r.Qualname, l.UnicodeLength, ^uint64(0)) },
			"negative bytes":     func(r *CodeRecord) { r.LineTable = put(r.LineTable, l.BytesSize, ^uint64(0)) },
			"a string not ready": func(r *CodeRecord) { r.Filename = put(r.Filename, l.UnicodeState, uint32(0)) },
		} {
			rec := good
			rec.Filename, rec.Qualname, rec.LineTable = bytes.Clone(rec.Filename), bytes.Clone(rec.Qualname), bytes.Clone(rec.LineTable)
			spoil(&rec)
			if c, err := DecodeCode(l, &rec, nil); err == nil {
				t.Errorf("%s: decoded as %+v, want an error", name, c)
			}
		}
	})
}

func TestDecodeSurrogates(t *testing.T) {
	// "\udc80", which is how Python keeps an undecodable byte of a file name.
	if got := decodeText([]byte{0x80, 0xdc, 'a', 0}, 2); got != "\ufffda" {
		t.Errorf("decoded a lone surrogate as %q", got)
	}
	if got := decodeText([]byte{0, 0, 0, 0xff, 'a', 0, 0, 0}, 4); got != "\ufffda" {
		t.Errorf("decoded a code point beyond Unicode as %q", got)
	}
}

func TestStarted(t *testing.T) {
	eachLayout(t, func(t *testing.T, l *Layout) {
		rec := &CodeRecord{
			FirstTraceable: 3, Filename: strBytes(l, "f.py"), Qualname: strBytes(l, "f"), LineTable: bytesObject(l, nil),
		}
		c, err := DecodeCode(l, rec, nil)
		if err != nil {
			t.Fatal(err)
		}
		for off, want := range map[int64]bool{-2: l.InstrIsIndex, 0: l.InstrIsIndex, 4: l.InstrIsIndex, 6: true, 8: true} {
			if got := c.Started(max(off, -int64(l.InstrUnit))); got != want {
				t.Errorf("a frame at offset %d: started = %v, want %v", off, got, want)
			}
		}
	})
}
