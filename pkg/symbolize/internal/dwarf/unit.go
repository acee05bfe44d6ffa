// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"fmt"
	"sort"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

// Kinds of units, DWARF 5 section 7.5.1.
const (
	unitCompile  = 0x01
	unitType     = 0x02
	unitPartial  = 0x03
	unitSkeleton = 0x04
	unitSplit    = 0x05
	unitSplitTyp = 0x06
)

// unitHead is where a unit is. There is one for each unit of the file.
type unitHead struct {
	off    uint64 // of the header, in .debug_info
	end    uint64
	die    uint64 // offset of the first entry
	abbrev uint64 // offset in .debug_abbrev
	format
	kind uint8
}

// unit is a unit whose first entry has been read.
type unit struct {
	unitHead
	low                                 uint64 // base address of ranges
	name, compDir                       value
	stmtList                            value
	strBase, addrBase, rngBase          uint64
	hasStrBase, hasAddrBase, hasRngBase bool
	funcs                               index // by address; ref is the entry's distance from off
	funcsRead                           bool
}

// isLocalRef reports whether a reference is relative to its unit.
func (u *unit) isLocalRef(v value) bool {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return true
	}
	return false
}

// readHeads walks the headers of .debug_info. A broken header ends the walk:
// there is no way to find the next one.
func (d *Data) readHeads() error {
	c := d.info.at(0, d.info.size)
	for c.more() {
		h, err := d.readHead(c)
		if err != nil {
			return err
		}
		if len(d.heads) == maxUnits {
			return fmt.Errorf("more than %d units: %w", maxUnits, elfsym.ErrTooLarge)
		}
		d.heads = append(d.heads, h)
		c.seek(h.end)
	}
	return c.err
}

// readHead reads a unit's header. DWARF 5 section 7.5.1.
func (d *Data) readHead(c *cursor) (unitHead, error) {
	h := unitHead{off: c.off()}
	n, is64 := c.unitLength()
	h.is64 = is64
	body := c.off()
	if c.err == nil && (n > maxUnitSize || n > c.end-body || n < 7) {
		return h, fmt.Errorf("unit of %d bytes at %#x: %w", n, h.off, elfsym.ErrCorrupt)
	}
	h.end = body + n
	h.version = c.u16()
	h.kind = unitCompile
	var addrSize uint8
	switch {
	case h.version >= 2 && h.version <= 4:
		h.abbrev = c.word(is64)
		addrSize = c.u8()
	case h.version == 5:
		h.kind = c.u8()
		addrSize = c.u8()
		h.abbrev = c.word(is64)
		switch h.kind {
		case unitSkeleton, unitSplit:
			c.skip(8)
		case unitType, unitSplitTyp:
			c.skip(8 + uint64(h.offsetSize()))
		}
	default:
		c.fail()
	}
	h.die = c.off()
	if c.err == nil && (addrSize != 8 || h.die > h.end) {
		c.fail()
	}
	return h, c.err
}

// headAt returns the index of the unit that contains an offset of .debug_info.
func (d *Data) headAt(off uint64) (int, bool) {
	i := sort.Search(len(d.heads), func(i int) bool { return d.heads[i].end > off })
	return i, i < len(d.heads) && off >= d.heads[i].die
}

// unit returns a unit with its first entry read.
func (d *Data) unit(i int) (*unit, error) {
	if u, ok := d.units[i]; ok {
		return u, nil
	}
	u, _, err := d.readUnit(d.heads[i])
	if err != nil {
		return nil, err
	}
	d.units[i] = u
	return u, nil
}

// readUnit reads a unit's first entry.
func (d *Data) readUnit(h unitHead) (*unit, *entry, error) {
	c := d.info.at(h.die, h.end)
	code := c.uleb()
	if c.err != nil {
		return nil, nil, c.err
	}
	u := &unit{unitHead: h}
	e := &entry{off: h.die}
	if code == 0 {
		return u, e, nil // an empty unit
	}
	a, err := d.abbrevFor(h.abbrev, h.format, code)
	if err != nil {
		return nil, nil, err
	}
	e.tag, e.children = a.tag, a.children
	c.attributes(h.format, a, e)
	if c.err != nil {
		return nil, nil, c.err
	}
	u.name, u.compDir, u.stmtList = e.name, e.compDir, e.stmtList
	u.strBase, u.hasStrBase = e.strBase.u, e.strBase.present()
	u.addrBase, u.hasAddrBase = e.addrBase.u, e.addrBase.present()
	u.rngBase, u.hasRngBase = e.rngBase.u, e.rngBase.present()
	if e.lowPC.present() {
		if u.low, err = d.address(u, e.lowPC); err != nil {
			return nil, nil, err
		}
	}
	return u, e, nil
}

// indexUnits maps addresses to units: one header and one entry of each.
// A unit that cannot be read is left out.
func (d *Data) indexUnits() error {
	for i, h := range d.heads {
		if h.kind != unitCompile && h.kind != unitSkeleton {
			continue
		}
		u, e, err := d.readUnit(h)
		if err != nil {
			if d.budgetSpent() {
				return err
			}
			d.keep(err)
			continue
		}
		if !e.hasCode() {
			continue
		}
		err = d.ranges(u, e, func(lo, hi uint64) bool {
			d.byAddr.add(lo, hi, uint32(i))
			return len(d.byAddr) < maxAllRanges
		})
		if err != nil {
			d.keep(err)
		}
	}
	d.byAddr.sort()
	return nil
}
