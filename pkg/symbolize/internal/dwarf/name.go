// SPDX-License-Identifier: Apache-2.0

package dwarf

// funcName is what the entry of a function and those that it refers to say of
// it.
type funcName struct {
	name, linkage string
	line          int // first line
}

// funcName returns the name of the function whose entry is at an offset of
// .debug_info. What is missing there is looked for in the entry that it is an
// instance of (abstract origin) or completes (specification), which may be in
// other units or in the supplementary file.
func (d *Data) funcName(off uint64) (funcName, error) {
	if n, ok := d.names[off]; ok {
		return n, nil
	}
	n, err := d.readFuncName(off)
	if len(d.names) >= maxNames {
		clear(d.names)
	}
	d.names[off] = n
	return n, err
}

func (d *Data) readFuncName(off uint64) (funcName, error) {
	var n funcName
	at := d
	for range maxReferences {
		i, ok := at.headAt(off)
		if !ok {
			return n, at.info.corrupt(off)
		}
		u, err := at.unit(i)
		if err != nil {
			return n, err
		}
		w, err := at.walk(u, off)
		if err != nil {
			return n, err
		}
		var e entry
		if !w.next(&e, isAnyTag) {
			return n, w.c.err
		}
		if err := at.addName(u, &e, &n); err != nil {
			return n, err
		}
		if n.linkage != "" && n.line != 0 {
			return n, nil
		}
		ref := e.origin
		if !ref.present() {
			ref = e.specification
		}
		if !ref.present() {
			return n, nil
		}
		if at, off, err = at.follow(u, ref); err != nil || at == nil {
			return n, err
		}
	}
	return n, at.info.corrupt(off)
}

// addName takes over what an entry says and its referrer did not.
func (d *Data) addName(u *unit, e *entry, n *funcName) (err error) {
	if n.linkage == "" {
		if n.linkage, err = d.text(u, e.linkage); err != nil {
			return err
		}
	}
	if n.name == "" {
		if n.name, err = d.text(u, e.name); err != nil {
			return err
		}
	}
	if n.line == 0 {
		n.line = e.declLine.line()
	}
	return nil
}

// follow resolves a reference to the file and offset of an entry. The file is
// nil if it is the supplementary one and that is not there.
func (d *Data) follow(u *unit, v value) (*Data, uint64, error) {
	switch {
	case u.isLocalRef(v):
		if v.u >= u.end-u.off {
			return nil, 0, d.info.corrupt(u.off)
		}
		return d, u.off + v.u, nil
	case v.form == formRefAddr:
		return d, v.u, nil
	case v.form == formGNURefAlt || v.form == formRefSup4 || v.form == formRefSup8:
		alt, err := d.alternate()
		return alt, v.u, err
	}
	return nil, 0, d.info.corrupt(u.off)
}
