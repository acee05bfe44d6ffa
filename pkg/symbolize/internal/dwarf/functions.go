// SPDX-License-Identifier: Apache-2.0

package dwarf

// indexFunctions maps the addresses of a unit to its functions, in one pass
// over its entries.
func (d *Data) indexFunctions(u *unit) error {
	if u.funcsRead {
		return nil
	}
	u.funcsRead = true
	w, err := d.walk(u, u.die)
	if err != nil {
		return err
	}
	var e entry
	for w.next(&e, isSubprogram) {
		if e.tag != tagSubprogram || !e.hasCode() {
			continue
		}
		err := d.ranges(u, &e, func(lo, hi uint64) bool {
			u.funcs.add(lo, hi, uint32(e.off-u.off))
			return len(u.funcs) < maxRanges
		})
		if err != nil {
			d.keep(err)
		}
		if len(u.funcs) >= maxRanges || d.budgetSpent() {
			break
		}
	}
	u.funcs.sort()
	return w.c.err
}

// call is a function of the chain at an address: the one that has the code,
// then those inlined into each other.
type call struct {
	off      uint64 // of the entry
	callFile uint64 // where it was inlined; of the first, nothing
	callLine int
}

// chain returns the functions at an address, outermost first; none if the
// unit knows no function there, as in assembly code.
func (d *Data) chain(u *unit, pc uint64) ([]call, error) {
	if err := d.indexFunctions(u); err != nil {
		d.keep(err)
	}
	r, ok := u.funcs.find(pc)
	if !ok {
		return nil, nil
	}
	top := u.off + uint64(r.ref)
	calls := []call{{off: top}}
	w, err := d.walk(u, top)
	if err != nil {
		return nil, err
	}
	var e entry
	if !w.next(&e, isFunction) || !e.children {
		return calls, w.c.err
	}
	// limit is the depth at which the innermost call found so far ends: what
	// follows it cannot be at pc, except for a second range of the same kind.
	for depth, limit := 1, 0; depth > limit && w.next(&e, isFunction); {
		switch {
		case e.tag == 0:
			depth--
		case !isFunction(e.tag):
			if e.children {
				depth++
			}
		case e.tag == tagInlined && d.covers(u, &e, pc):
			file, _ := e.callFile.number()
			calls = append(calls, call{off: e.off, callFile: file, callLine: e.callLine.line()})
			if !e.children || len(calls) > maxInlineDepth {
				return calls, w.c.err
			}
			limit = depth
			depth++
		default:
			w.skipChildren(&e)
		}
	}
	return calls, w.c.err
}

// covers reports whether an entry's code contains pc.
func (d *Data) covers(u *unit, e *entry, pc uint64) bool {
	found := false
	if e.hasCode() {
		err := d.ranges(u, e, func(lo, hi uint64) bool {
			found = lo <= pc && pc < hi
			return !found
		})
		if err != nil {
			d.keep(err)
		}
	}
	return found
}
