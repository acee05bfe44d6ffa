// SPDX-License-Identifier: Apache-2.0

package elfsym

import "bytes"

// encDecoder reads the encodings of .eh_frame from a few bytes. What cannot be
// read sets bad and yields zeros.
type encDecoder struct {
	b       []byte
	pos     int
	vaddr   uint64 // virtual address of b[0]
	datarel uint64 // base of data-relative addresses
	bad     bool
}

func (d *encDecoder) take(n int) []byte {
	if d.bad || n > len(d.b)-d.pos {
		d.bad = true
		return make([]byte, 8)[:n]
	}
	b := d.b[d.pos : d.pos+n]
	d.pos += n
	return b
}

func (d *encDecoder) u8() byte    { return d.take(1)[0] }
func (d *encDecoder) u16() uint16 { return le.Uint16(d.take(2)) }
func (d *encDecoder) u32() uint32 { return le.Uint32(d.take(4)) }
func (d *encDecoder) u64() uint64 { return le.Uint64(d.take(8)) }
func (d *encDecoder) skip(n int)  { d.take(n) }

// length reads the length of an entry, 0 at the end of the section.
func (d *encDecoder) length() uint64 {
	n := uint64(d.u32())
	if n == 0xffffffff {
		n = d.u64()
	}
	if d.bad {
		return 0
	}
	return n
}

func (d *encDecoder) uleb() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c := d.u8()
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return v
		}
	}
	d.bad = true
	return 0
}

func (d *encDecoder) sleb() int64 {
	var v int64
	for shift := 0; shift < 64; shift += 7 {
		c := d.u8()
		v |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			if c&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	d.bad = true
	return 0
}

func (d *encDecoder) cstring() string {
	n := bytes.IndexByte(d.b[d.pos:], 0)
	if d.bad || n < 0 {
		d.bad = true
		return ""
	}
	s := string(d.b[d.pos : d.pos+n])
	d.pos += n + 1
	return s
}

// value reads a pointer of a DW_EH_PE encoding (LSB 5.0, 10.5.1): the low four
// bits are the format, the next three what it is relative to. Those that only
// a running process can resolve are refused.
func (d *encDecoder) value(enc byte) uint64 {
	if enc == 0xff { // DW_EH_PE_omit
		return 0
	}
	at := d.vaddr + uint64(d.pos)
	var v uint64
	switch enc & 0x0f {
	case 0x00, 0x04, 0x0c: // absptr, udata8, sdata8
		v = d.u64()
	case 0x01:
		v = d.uleb()
	case 0x02:
		v = uint64(d.u16())
	case 0x03:
		v = uint64(d.u32())
	case 0x09:
		v = uint64(d.sleb())
	case 0x0a:
		v = uint64(int64(int16(d.u16())))
	case 0x0b:
		v = uint64(int64(int32(d.u32())))
	default:
		d.bad = true
	}
	switch enc & 0xf0 {
	case 0x00:
	case 0x10: // pcrel
		v += at
	case 0x30: // datarel
		v += d.datarel
	default:
		d.bad = true
	}
	return v
}
