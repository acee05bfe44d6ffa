// SPDX-License-Identifier: Apache-2.0

package dwarf

// Tags of the entries that are looked at, DWARF 5 section 7.5.3.
const (
	tagCompileUnit  = 0x11
	tagInlined      = 0x1d
	tagSubprogram   = 0x2e
	tagPartialUnit  = 0x3c
	tagSkeletonUnit = 0x4a
)

// Attributes that are looked at, DWARF 5 section 7.5.4.
const (
	attrSibling       = 0x01
	attrName          = 0x03
	attrStmtList      = 0x10
	attrLowPC         = 0x11
	attrHighPC        = 0x12
	attrCompDir       = 0x1b
	attrOrigin        = 0x31
	attrDeclLine      = 0x3b
	attrSpecification = 0x47
	attrRanges        = 0x55
	attrCallFile      = 0x58
	attrCallLine      = 0x59
	attrLinkageName   = 0x6e
	attrStrBase       = 0x72
	attrAddrBase      = 0x73
	attrRngBase       = 0x74
	attrMIPSLinkage   = 0x2007
	attrGNUAddrBase   = 0x2133
)

// attr is an attribute of a declaration.
type attr struct {
	name     uint16
	form     form
	implicit uint64
}

// abbrev is a declaration: what entries with its code consist of.
type abbrev struct {
	tag      uint32
	children bool
	size     int // of all attributes together, -1 if it varies
	attrs    []attr
}

// abbrevs is a table of declarations, by code.
type abbrevs struct {
	dense  []abbrev // code-1, as compilers number them
	sparse map[uint64]*abbrev
}

func (t *abbrevs) get(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// abbrevKey tells tables apart: sizes depend on the format too.
type abbrevKey struct {
	off uint64
	format
}

// abbrevs returns the table at an offset of .debug_abbrev.
func (d *Data) abbrevs(off uint64, f format) (*abbrevs, error) {
	key := abbrevKey{off, f}
	if t, ok := d.abbrevCache[key]; ok {
		return t, nil
	}
	t := &abbrevs{sparse: make(map[uint64]*abbrev)}
	c := d.abbrev.at(off, d.abbrev.size)
	for n := 0; ; n++ {
		code, a := c.declaration(f)
		if c.err != nil {
			return nil, c.err
		}
		if code == 0 {
			break
		}
		if n > maxAbbrevs {
			return nil, d.abbrev.corrupt(off)
		}
		switch {
		case code == uint64(len(t.dense))+1:
			t.dense = append(t.dense, a)
		case t.get(code) == nil:
			t.sparse[code] = &a
		}
	}
	if len(d.abbrevCache) >= maxAbbrevTables {
		clear(d.abbrevCache)
	}
	d.abbrevCache[key] = t
	return t, nil
}

// abbrevFor returns the one declaration of a code without decoding the table
// behind it. A unit's first entry mostly has the first.
func (d *Data) abbrevFor(off uint64, f format, want uint64) (*abbrev, error) {
	c := d.abbrev.at(off, d.abbrev.size)
	for range maxAbbrevs {
		code, a := c.declaration(f)
		if c.err != nil {
			return nil, c.err
		}
		if code == 0 {
			break
		}
		if code == want {
			return &a, nil
		}
	}
	return nil, d.abbrev.corrupt(off)
}

// declaration reads one declaration; code 0 ends the table.
func (c *cursor) declaration(f format) (code uint64, a abbrev) {
	if code = c.uleb(); code == 0 {
		return 0, a
	}
	tag := c.uleb()
	a.tag = uint32(min(tag, 1<<32-1))
	a.children = c.u8() != 0
	for range maxAbbrevAttrs {
		name, fm := c.uleb(), c.uleb()
		if c.err != nil || name == 0 && fm == 0 {
			return code, a
		}
		if name > 0xffff || fm > 0xffff {
			break
		}
		x := attr{name: uint16(name), form: form(fm)}
		if x.form == formImplicit {
			x.implicit = uint64(c.sleb())
		}
		a.attrs = append(a.attrs, x)
		if n := f.size(x.form); n < 0 || a.size < 0 {
			a.size = -1
		} else {
			a.size += n
		}
	}
	c.fail()
	return code, a
}
