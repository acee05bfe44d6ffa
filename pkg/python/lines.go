// SPDX-License-Identifier: Apache-2.0

package python

import (
	"math"
	"sort"
)

// lineSpan says that instructions from byte offset start on, up to the next
// span, are of a line; 0 if of none.
type lineSpan struct {
	start int64
	line  int32
}

// lineTable maps byte offsets of instructions to lines.
type lineTable struct {
	spans []lineSpan // sorted by start
	end   int64      // offsets from here on are not covered
}

// at returns the line of an offset, 0 if it is unknown.
func (t *lineTable) at(off int64) int {
	if off < 0 || off >= t.end {
		return 0
	}
	i := sort.Search(len(t.spans), func(i int) bool { return t.spans[i].start > off })
	if i == 0 {
		return 0
	}
	return int(t.spans[i-1].line)
}

// add appends a span of n bytes. Adjacent spans of a line become one; a line
// that no source can have becomes none.
func (t *lineTable) add(n, line int64) {
	if line < 0 || line > math.MaxInt32 {
		line = 0
	}
	if k := len(t.spans); n > 0 && (k == 0 || t.spans[k-1].line != int32(line)) {
		t.spans = append(t.spans, lineSpan{t.end, int32(line)})
	}
	t.end += n
}

// parseLines decodes a line table, or the part of one that is there.
func parseLines(format LineFormat, b []byte, firstLine int32, whole bool) lineTable {
	switch format {
	case LinesDelta:
		return parseLinesDelta(b, firstLine, whole)
	case LinesRange:
		return parseLinesRange(b, firstLine)
	default:
		return parseLinesLocation(b, firstLine)
	}
}

// parseLinesDelta decodes 3.9's co_lnotab: pairs of an unsigned address and a
// signed line increment. A line holds from the sum of addresses on, and the last
// one to the end of the code, of which the table does not speak
// (PyCode_Addr2Line in Objects/codeobject.c).
func parseLinesDelta(b []byte, firstLine int32, whole bool) lineTable {
	var t lineTable
	line := int64(firstLine)
	for ; len(b) >= 2; b = b[2:] {
		t.add(int64(b[0]), line)
		line += int64(int8(b[1]))
	}
	if whole {
		t.add(math.MaxInt32, line)
	}
	return t
}

// noLine is the line increment of an entry without a line in 3.10.
const noLine = -128

// parseLinesRange decodes 3.10's co_linetable: pairs of the unsigned size of a
// range and the signed line increment that holds for that range.
func parseLinesRange(b []byte, firstLine int32) lineTable {
	var t lineTable
	line := int64(firstLine)
	for ; len(b) >= 2; b = b[2:] {
		if d := int8(b[1]); d != noLine {
			line += int64(d)
			t.add(int64(b[0]), line)
		} else {
			t.add(int64(b[0]), 0)
		}
	}
	return t
}

// Codes of location entries that matter for lines; all others keep the line
// (Objects/locations.md).
const (
	locOneLine0  = 10 // 10 to 12: line increment of 0 to 2
	locOneLine2  = 12
	locNoColumns = 13
	locLong      = 14
	locNone      = 15
)

// codeUnit is the size of an instruction word.
const codeUnit = 2

// parseLinesLocation decodes the location table of 3.11 and later: entries of
// one byte with the top bit set (code, and count of code units less one),
// followed by bytes with it clear.
func parseLinesLocation(b []byte, firstLine int32) lineTable {
	var t lineTable
	line := int64(firstLine)
	for len(b) > 0 {
		head := b[0]
		n := 1
		for n < len(b) && b[n]&0x80 == 0 {
			n++
		}
		code, units := head>>3&0xf, int64(head&7)+1
		if head&0x80 == 0 {
			return t // not at the start of an entry: a damaged table
		}
		switch {
		case code == locNone:
			t.add(units*codeUnit, 0)
		case code == locLong || code == locNoColumns:
			d, ok := signedVarint(b[1:n])
			if !ok {
				return t // the table was cut here
			}
			line += d
			t.add(units*codeUnit, line)
		case code >= locOneLine0 && code <= locOneLine2:
			line += int64(code - locOneLine0)
			t.add(units*codeUnit, line)
		default:
			t.add(units*codeUnit, line)
		}
		b = b[n:]
	}
	return t
}

// signedVarint decodes 6 bits a byte, least significant first, bit 6 set on all
// but the last; the lowest bit of the whole is the sign.
func signedVarint(b []byte) (int64, bool) {
	var u uint64
	for i, c := range b {
		if i >= 10 { // 60 bits hold any line
			return 0, false
		}
		u |= uint64(c&0x3f) << (6 * i)
		if c&0x40 == 0 {
			d := int64(u >> 1)
			if u&1 != 0 {
				d = -d
			}
			return d, true
		}
	}
	return 0, false
}
