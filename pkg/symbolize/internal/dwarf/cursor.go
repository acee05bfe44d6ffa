// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"encoding/binary"
)

var le = binary.LittleEndian

// The window of a cursor starts small, since most lookups read one entry, and
// grows while reading goes on in sequence.
const (
	minWindow = 512
	maxWindow = 64 << 10
)

// cursor reads a source in sequence through a window. The first error sticks:
// reading goes on with zeros, and who drives a loop checks err.
type cursor struct {
	src  *source
	buf  []byte
	pos  int    // in buf
	base uint64 // section offset of buf[0]
	end  uint64 // section offset behind the last readable byte
	win  int
	err  error
}

// at returns a cursor over [off, end) of the source, cut to its size.
func (s *source) at(off, end uint64) *cursor {
	return &cursor{src: s, base: off, end: min(end, s.size), win: minWindow}
}

func (c *cursor) off() uint64 { return c.base + uint64(c.pos) }

// more reports whether there is something left to read.
func (c *cursor) more() bool { return c.err == nil && c.off() < c.end }

func (c *cursor) fail() {
	if c.err == nil {
		c.err = c.src.corrupt(c.off())
	}
}

// seek moves to a section offset.
func (c *cursor) seek(off uint64) {
	if off >= c.base && off-c.base <= uint64(len(c.buf)) {
		c.pos = int(off - c.base)
		return
	}
	if off != c.base+uint64(len(c.buf)) {
		c.win = minWindow
	}
	c.base, c.pos, c.buf = off, 0, c.buf[:0]
}

// fill makes at least n bytes available, n being far less than a window.
func (c *cursor) fill(n int) bool {
	if c.err != nil {
		return false
	}
	off := c.off()
	if off > c.end || uint64(n) > c.end-off {
		c.fail()
		return false
	}
	size := int(min(uint64(max(n, c.win)), c.end-off))
	if cap(c.buf) < size {
		c.buf = make([]byte, size)
	}
	c.buf, c.base, c.pos = c.buf[:size], off, 0
	if err := c.src.read(c.buf, off); err != nil {
		c.err, c.buf = err, c.buf[:0]
		return false
	}
	c.win = min(2*c.win, maxWindow)
	return true
}

func (c *cursor) u8() uint8 {
	if len(c.buf)-c.pos < 1 && !c.fill(1) {
		return 0
	}
	v := c.buf[c.pos]
	c.pos++
	return v
}

func (c *cursor) u16() uint16 {
	if len(c.buf)-c.pos < 2 && !c.fill(2) {
		return 0
	}
	v := le.Uint16(c.buf[c.pos:])
	c.pos += 2
	return v
}

func (c *cursor) u24() uint32 {
	lo := c.u16()
	return uint32(lo) | uint32(c.u8())<<16
}

func (c *cursor) u32() uint32 {
	if len(c.buf)-c.pos < 4 && !c.fill(4) {
		return 0
	}
	v := le.Uint32(c.buf[c.pos:])
	c.pos += 4
	return v
}

func (c *cursor) u64() uint64 {
	if len(c.buf)-c.pos < 8 && !c.fill(8) {
		return 0
	}
	v := le.Uint64(c.buf[c.pos:])
	c.pos += 8
	return v
}

// word reads an offset or length of the unit's format.
func (c *cursor) word(is64 bool) uint64 {
	if is64 {
		return c.u64()
	}
	return uint64(c.u32())
}

// unitLength reads the length that starts a unit, and its format.
func (c *cursor) unitLength() (n uint64, is64 bool) {
	n = uint64(c.u32())
	if n == 0xffffffff {
		return c.u64(), true
	}
	if n >= 0xfffffff0 { // reserved
		c.fail()
	}
	return n, false
}

func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		b := c.u8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			return v
		}
	}
	c.fail()
	return 0
}

func (c *cursor) sleb() int64 {
	var v int64
	for shift := 0; shift < 70; shift += 7 {
		b := c.u8()
		if shift < 64 {
			v |= int64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			if b&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	c.fail()
	return 0
}

// skip moves n bytes on.
func (c *cursor) skip(n uint64) {
	if n <= uint64(len(c.buf)-c.pos) {
		c.pos += int(n)
		return
	}
	off := c.off()
	if off > c.end || n > c.end-off {
		c.fail()
		return
	}
	c.seek(off + n)
}

// skipString moves behind a NUL-terminated string.
func (c *cursor) skipString() {
	for {
		if len(c.buf) == c.pos && !c.fill(1) {
			return
		}
		if i := bytes.IndexByte(c.buf[c.pos:], 0); i >= 0 {
			c.pos += i + 1
			return
		}
		c.pos = len(c.buf)
	}
}
