// SPDX-License-Identifier: Apache-2.0

package dwarf

// address resolves an attribute of class address.
func (d *Data) address(u *unit, v value) (uint64, error) {
	switch v.form {
	case formAddr:
		return v.u, nil
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		return d.addressAt(u, v.u)
	}
	return 0, d.info.corrupt(u.die)
}

// addressAt returns an entry of the unit's part of .debug_addr.
func (d *Data) addressAt(u *unit, i uint64) (uint64, error) {
	base := u.addrBase
	if !u.hasAddrBase && u.version >= 5 {
		base = 8 // behind the header of the only table
	}
	if i > d.addr.size/8 {
		return 0, d.addr.corrupt(base)
	}
	var b [8]byte
	err := d.addr.read(b[:], base+8*i)
	return le.Uint64(b[:]), err
}

// text resolves an attribute of class string.
func (d *Data) text(u *unit, v value) (string, error) {
	switch v.form {
	case 0:
		return "", nil
	case formString:
		return d.info.str(v.u)
	case formStrp:
		return d.strs.str(v.u)
	case formLineStrp:
		return d.lineStrs.str(v.u)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		return d.textAt(u, v.u)
	case formGNUStrpAlt, formStrpSup:
		alt, err := d.alternate()
		if alt == nil {
			return "", err
		}
		return alt.altText(v.u)
	}
	return "", d.info.corrupt(u.die)
}

// textAt returns the string of an entry of the unit's part of
// .debug_str_offsets.
func (d *Data) textAt(u *unit, i uint64) (string, error) {
	size := uint64(u.offsetSize())
	base := u.strBase
	if !u.hasStrBase && u.version >= 5 {
		base = 2 * size // behind the header of the only table: length, version, padding
	}
	if i > d.strOffs.size/size {
		return "", d.strOffs.corrupt(base)
	}
	c := d.strOffs.at(base+size*i, d.strOffs.size)
	off := c.word(u.is64)
	if c.err != nil {
		return "", c.err
	}
	return d.strs.str(off)
}

// number resolves an attribute of class constant; ok is false for others.
func (v value) number() (n uint64, ok bool) {
	switch v.form {
	case formData1, formData2, formData4, formData8, formUdata, formSdata, formImplicit:
		return v.u, true
	}
	return 0, false
}

// line resolves a line number, 0 if absent or absurd.
func (v value) line() int {
	n, _ := v.number()
	if n > 1<<30 {
		return 0
	}
	return int(n)
}
