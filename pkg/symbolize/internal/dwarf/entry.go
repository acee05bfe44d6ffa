// SPDX-License-Identifier: Apache-2.0

package dwarf

// entry is a debugging information entry: those of its attributes that are
// looked at.
type entry struct {
	off      uint64 // in .debug_info
	tag      uint32 // 0 ends a list of children
	children bool

	sibling, name, linkage, stmtList, lowPC, highPC, ranges, compDir value
	origin, specification, declLine, callFile, callLine              value
	strBase, addrBase, rngBase                                       value
}

// field returns where an attribute is kept, nil if it is not.
func (e *entry) field(name uint16) *value {
	switch name {
	case attrSibling:
		return &e.sibling
	case attrName:
		return &e.name
	case attrLinkageName, attrMIPSLinkage:
		return &e.linkage
	case attrStmtList:
		return &e.stmtList
	case attrLowPC:
		return &e.lowPC
	case attrHighPC:
		return &e.highPC
	case attrRanges:
		return &e.ranges
	case attrCompDir:
		return &e.compDir
	case attrOrigin:
		return &e.origin
	case attrSpecification:
		return &e.specification
	case attrDeclLine:
		return &e.declLine
	case attrCallFile:
		return &e.callFile
	case attrCallLine:
		return &e.callLine
	case attrStrBase:
		return &e.strBase
	case attrAddrBase, attrGNUAddrBase:
		return &e.addrBase
	case attrRngBase:
		return &e.rngBase
	}
	return nil
}

// hasCode reports whether the entry states where its code is.
func (e *entry) hasCode() bool { return e.lowPC.present() || e.ranges.present() }

// attributes reads an entry's attributes.
func (c *cursor) attributes(f format, a *abbrev, e *entry) {
	for i := range a.attrs {
		x := &a.attrs[i]
		v := c.value(f, x.form, x.implicit)
		if p := e.field(x.name); p != nil {
			*p = v
		}
	}
}

// walker reads the entries of a unit in sequence.
type walker struct {
	c   *cursor
	u   *unit
	tab *abbrevs
}

// walk starts at the entry at a section offset within the unit.
func (d *Data) walk(u *unit, off uint64) (*walker, error) {
	if off < u.die || off >= u.end {
		return nil, d.info.corrupt(off)
	}
	tab, err := d.abbrevs(u.abbrev, u.format)
	if err != nil {
		return nil, err
	}
	return &walker{c: d.info.at(off, u.end), u: u, tab: tab}, nil
}

// next reads an entry. The attributes are decoded if want says so of its tag,
// else skipped. It reports false at the end of the unit and on an error.
func (w *walker) next(e *entry, want func(tag uint32) bool) bool {
	if !w.c.more() {
		return false
	}
	off := w.c.off()
	code := w.c.uleb()
	if code == 0 {
		e.off, e.tag, e.children = off, 0, false
		return w.c.err == nil
	}
	a := w.tab.get(code)
	if a == nil {
		w.c.fail()
		return false
	}
	switch {
	case want(a.tag):
		*e = entry{off: off, tag: a.tag, children: a.children}
		w.c.attributes(w.u.format, a, e)
	case a.size >= 0:
		e.off, e.tag, e.children = off, a.tag, a.children
		w.c.skip(uint64(a.size))
	default:
		e.off, e.tag, e.children = off, a.tag, a.children
		for i := range a.attrs {
			w.c.value(w.u.format, a.attrs[i].form, 0)
		}
	}
	return w.c.err == nil
}

// skipChildren moves behind the children of the entry just read.
func (w *walker) skipChildren(e *entry) {
	if !e.children {
		return
	}
	if off := w.u.off + e.sibling.u; e.sibling.present() && w.u.isLocalRef(e.sibling) && off > w.c.off() && off < w.u.end {
		w.c.seek(off)
		return
	}
	var x entry
	for depth := 1; depth > 0 && w.next(&x, isNoTag); {
		switch {
		case x.tag == 0:
			depth--
		case x.children:
			depth++
		}
	}
}

func isNoTag(uint32) bool { return false }

func isSubprogram(tag uint32) bool { return tag == tagSubprogram }

// isFunction selects what stands for a function, inlined or not.
func isFunction(tag uint32) bool { return tag == tagSubprogram || tag == tagInlined }

func isAnyTag(uint32) bool { return true }
