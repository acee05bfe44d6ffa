// SPDX-License-Identifier: Apache-2.0

package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxStringBytes bounds the data of a str that is decoded. File names are at
// most PATH_MAX (4,096 bytes), qualnames that anyone reads are shorter; a
// hostile target could have strings of gigabytes.
const maxStringBytes = 16 << 10

// cut is appended to a string whose end is missing.
const cut = "…"

// The bit fields of PyASCIIObject.state, the same in 3.9 to 3.14 with GIL
// (Include/cpython/unicodeobject.h): interned:2, kind:3, compact:1, ascii:1.
const (
	stateKindShift = 2
	stateKindMask  = 7
	stateCompact   = 1 << 5
	stateASCII     = 1 << 6
)

var errNoString = errors.New("not a str object")

// strObject is a str of the target: where its data is, and how wide.
type strObject struct {
	length int64 // in code points
	width  int   // bytes a code point
	data   uint64
	inline bool // data is an offset from the object's start, else an address
}

// parseString reads the header of a str object from its first bytes.
func (l *Layout) parseString(b []byte) (strObject, error) {
	if len(b) < int(max(l.UnicodeLength+8, l.UnicodeState+4)) {
		return strObject{}, fmt.Errorf("%w: %d bytes", errNoString, len(b))
	}
	s := strObject{length: int64(binary.LittleEndian.Uint64(b[l.UnicodeLength:])), inline: true}
	state := binary.LittleEndian.Uint32(b[l.UnicodeState:])
	switch kind := state >> stateKindShift & stateKindMask; kind {
	case 1, 2, 4:
		s.width = int(kind)
	default: // 0: a string of 3.9 to 3.11 that is not ready; co_* strings always are
		return strObject{}, fmt.Errorf("%w: its kind is %d", errNoString, kind)
	}
	if s.length < 0 {
		return strObject{}, fmt.Errorf("%w: its length is %d", errNoString, s.length)
	}
	switch {
	case state&stateCompact == 0:
		if len(b) < int(l.LegacyData+8) {
			return strObject{}, fmt.Errorf("%w: %d bytes", errNoString, len(b))
		}
		s.data, s.inline = binary.LittleEndian.Uint64(b[l.LegacyData:]), false
	case state&stateASCII != 0:
		s.data = uint64(l.AsciiData)
	default:
		s.data = uint64(l.CompactData)
	}
	return s, nil
}

// decodeString decodes a str from the object's first bytes. What b lacks is
// marked with an ellipsis, unless mem (which may be nil) can provide it: addr is
// the object's address. Code points that no text may have (surrogates, by which
// Python keeps undecodable bytes of file names) become U+FFFD.
func (l *Layout) decodeString(b []byte, addr uint64, mem Target) (string, error) {
	s, err := l.parseString(b)
	if err != nil {
		return "", err
	}
	size := int64(maxStringBytes)
	if s.length < size/int64(s.width) {
		size = s.length * int64(s.width)
	}
	var data []byte
	if s.inline {
		data = b[min(int(s.data), len(b)):]
	}
	if int64(len(data)) < size && mem != nil {
		at := s.data
		if s.inline {
			at += addr
		}
		whole := make([]byte, size)
		if readFull(mem, whole, at) == nil {
			data = whole
		}
	}
	if int64(len(data)) > size {
		data = data[:size]
	}
	text := decodeText(data, s.width)
	if int64(len(data))/int64(s.width) < s.length {
		text += cut
	}
	return text, nil
}

// decodeText decodes whole code points of 1 (latin-1), 2 or 4 bytes.
func decodeText(b []byte, width int) string {
	var sb strings.Builder
	sb.Grow(len(b) / width)
	for ; len(b) >= width; b = b[width:] {
		var r rune
		switch width {
		case 1:
			r = rune(b[0])
		case 2:
			r = rune(binary.LittleEndian.Uint16(b))
		default:
			r = rune(binary.LittleEndian.Uint32(b))
		}
		if !utf8.ValidRune(r) {
			r = utf8.RuneError
		}
		sb.WriteRune(r)
	}
	return sb.String()
}
