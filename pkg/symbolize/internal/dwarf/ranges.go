// SPDX-License-Identifier: Apache-2.0

package dwarf

// Kinds of entries in .debug_rnglists, DWARF 5 section 7.25.
const (
	rleEnd          = 0
	rleBaseAddressx = 1
	rleStartxEndx   = 2
	rleStartxLength = 3
	rleOffsetPair   = 4
	rleBaseAddress  = 5
	rleStartEnd     = 6
	rleStartLength  = 7
)

// ranges calls add for the address ranges of an entry until it returns false.
func (d *Data) ranges(u *unit, e *entry, add func(lo, hi uint64) bool) error {
	if e.ranges.present() {
		if u.version >= 5 {
			return d.rangeList(u, e.ranges, add)
		}
		return d.oldRangeList(u, e.ranges, add)
	}
	lo, err := d.address(u, e.lowPC)
	if err != nil || !e.highPC.present() {
		return err
	}
	hi, ok := e.highPC.number()
	if ok {
		hi += lo
	} else if hi, err = d.address(u, e.highPC); err != nil {
		return err
	}
	add(lo, hi)
	return nil
}

// oldRangeList reads .debug_ranges: pairs of addresses relative to a base,
// which a pair with the highest address sets. DWARF 4 section 2.17.3.
func (d *Data) oldRangeList(u *unit, v value, add func(lo, hi uint64) bool) error {
	c := d.oldRanges.at(v.u, d.oldRanges.size)
	base := u.low
	for range maxRanges {
		lo, hi := c.u64(), c.u64()
		switch {
		case c.err != nil:
			return c.err
		case lo == 0 && hi == 0:
			return nil
		case lo == 1<<64-1:
			base = hi
		case !add(base+lo, base+hi):
			return nil
		}
	}
	return d.oldRanges.corrupt(v.u)
}

// rangeList reads .debug_rnglists. DWARF 5 section 2.17.3.
func (d *Data) rangeList(u *unit, v value, add func(lo, hi uint64) bool) error {
	off := v.u
	if v.form == formRnglistx {
		size := uint64(u.offsetSize())
		if v.u > d.rngLists.size/size {
			return d.rngLists.corrupt(u.rngBase)
		}
		c := d.rngLists.at(u.rngBase+size*v.u, d.rngLists.size)
		off = u.rngBase + c.word(u.is64)
		if c.err != nil {
			return c.err
		}
	}
	c := d.rngLists.at(off, d.rngLists.size)
	base := u.low
	for range maxRanges {
		kind := c.u8()
		lo, hi, err := d.rangeEntry(u, c, kind, &base)
		if err == nil {
			err = c.err
		}
		if err != nil || kind == rleEnd {
			return err
		}
		if lo < hi && !add(lo, hi) {
			return nil
		}
	}
	return d.rngLists.corrupt(off)
}

// rangeEntry reads the rest of an entry of a kind. One that sets the base
// yields an empty range.
func (d *Data) rangeEntry(u *unit, c *cursor, kind uint8, base *uint64) (lo, hi uint64, err error) {
	switch kind {
	case rleEnd:
	case rleBaseAddressx:
		*base, err = d.addressAt(u, c.uleb())
	case rleBaseAddress:
		*base = c.u64()
	case rleOffsetPair:
		lo, hi = *base+c.uleb(), *base+c.uleb()
	case rleStartEnd:
		lo, hi = c.u64(), c.u64()
	case rleStartLength:
		lo = c.u64()
		hi = lo + c.uleb()
	case rleStartxLength:
		if lo, err = d.addressAt(u, c.uleb()); err == nil {
			hi = lo + c.uleb()
		}
	case rleStartxEndx:
		if lo, err = d.addressAt(u, c.uleb()); err == nil {
			hi, err = d.addressAt(u, c.uleb())
		}
	default:
		c.fail()
	}
	return lo, hi, err
}
