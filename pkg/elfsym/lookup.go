// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// Lookup finds defined symbols by exact name: through the hash table of the
// dynamic symbols first, and by one pass over .symtab for names that are not
// among them. Thread-local variables are found too. The result has the names
// that exist and no others.
//
// Of several dynamic symbols of a name the one of the default version is
// returned; of several others the most visible, then the largest, then the one
// at the lowest address.
//
// What one table yields is returned also if the other is unreadable, with the
// error.
func (f *File) Lookup(names ...string) (map[string]Symbol, error) {
	found := make(map[string]Symbol, len(names))
	err := f.lookupDynamic(names, found)
	var rest []string
	for _, n := range names {
		if _, ok := found[n]; !ok && n != "" {
			rest = append(rest, n)
		}
	}
	if len(rest) == 0 {
		return found, err
	}
	t, serr := f.symtab()
	if t != nil {
		serr = f.scanSymtab(t, rest, found)
	}
	return found, errors.Join(err, serr)
}

// isNameable reports whether Lookup returns such a symbol.
func isNameable(s *rawSymbol) bool {
	switch s.typ() {
	case elf.STT_NOTYPE, elf.STT_FUNC, elf.STT_OBJECT, elf.STT_GNU_IFUNC, elf.STT_TLS:
		return s.defined()
	}
	return false
}

func (s *rawSymbol) symbol(name string) Symbol {
	return Symbol{Name: name, Value: s.value, Size: s.size, Type: s.typ(), Bind: s.bind()}
}

func (f *File) lookupDynamic(names []string, found map[string]Symbol) error {
	t, err := f.dynsym()
	if t == nil {
		return err
	}
	find, err := f.hashOf(t)
	if err != nil {
		return fmt.Errorf("opening the symbol hash table: %w", err)
	}
	if find == nil {
		return f.scanSymtab(t, names, found)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		hidden := true // is what was found of a version other than the default
		err := find(name, func(s *rawSymbol) error {
			if !isNameable(s) || !f.nameIs(t.str, uint64(s.name), name) {
				return nil
			}
			h := f.isHidden(t, s.index)
			c := s.symbol(name)
			if old, ok := found[name]; !ok || hidden && !h || hidden == h && better(c, old) {
				found[name], hidden = c, h
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("looking up %q: %w", name, err)
		}
	}
	return nil
}

// hashOf returns the search function of the table's hash, nil if it has none.
func (f *File) hashOf(t *symtab) (func(string, func(*rawSymbol) error) error, error) {
	if t.gnuHash.size > 0 {
		h, err := f.openGNUHash(t)
		if err != nil {
			return nil, err
		}
		return h.find, nil
	}
	if t.sysvHash.size > 0 {
		h, err := f.openSysvHash(t)
		if err != nil {
			return nil, err
		}
		return h.find, nil
	}
	return nil, nil
}

// better reports whether a is to be preferred to b of the same name.
func better(a, b Symbol) bool {
	if c := compareRank(a, b); c != 0 {
		return c < 0
	}
	return a.Value < b.Value
}

// nameIs reports whether the name at off of a string table is this one.
func (f *File) nameIs(str region, off uint64, name string) bool {
	n := uint64(len(name)) + 1
	if off > str.size || n > str.size-off {
		return false
	}
	b := make([]byte, n)
	return f.readInto(b, str.off+off) == nil && b[n-1] == 0 && string(b[:n-1]) == name
}

// isHidden reports whether a dynamic symbol is of a version other than the
// default one (bit 15 of its entry in .gnu.version).
func (f *File) isHidden(t *symtab, index uint64) bool {
	if (index+1)*2 > t.versym.size {
		return false
	}
	var b [2]byte
	return f.readInto(b[:], t.versym.off+2*index) == nil && b[1]&0x80 != 0
}

// scanSymtab finds names in a table that has no hash: first where they stand
// in the string table, then the symbols that point there. It reads both tables
// once in windows and keeps neither.
func (f *File) scanSymtab(t *symtab, names []string, found map[string]Symbol) error {
	at, err := f.findStrings(t.str, names)
	if err != nil || len(at) == 0 {
		return err
	}
	return f.eachSymbol(t, func(s *rawSymbol) bool {
		name, ok := at[s.name]
		if !ok || !isNameable(s) {
			return true
		}
		c := s.symbol(name)
		if old, ok := found[name]; !ok || better(c, old) {
			found[name] = c
		}
		return true
	})
}

// stringWindow is how much of a string table is read at once.
const stringWindow = 256 << 10

// findStrings returns the offsets in a string table at which one of names
// stands, alone, with a version, or as the tail of a longer string with which
// the linker merged it.
func (f *File) findStrings(str region, names []string) (map[uint32]string, error) {
	m := newTailMatcher(names)
	buf := make([]byte, m.longest+stringWindow)
	at := make(map[uint32]string)
	// Each window begins with the last bytes of the one before, so that a name
	// that ends in it is wholly within.
	kept := 0
	for pos := uint64(0); pos < str.size; {
		n := int(min(str.size-pos, stringWindow))
		if err := f.readInto(buf[kept:kept+n], str.off+pos); err != nil {
			return nil, fmt.Errorf("reading symbol names: %w", err)
		}
		b := buf[:kept+n]
		base := pos - uint64(kept)
		for i := kept; ; i++ {
			j := bytes.IndexByte(b[i:], 0)
			if j < 0 {
				break
			}
			i += j
			m.match(b[:i], func(off int, name string) {
				if o := base + uint64(off); o <= 1<<32-1 {
					at[uint32(o)] = name
				}
			})
		}
		pos += uint64(n)
		keep := min(m.longest, len(b))
		copy(buf, b[len(b)-keep:])
		kept = keep
	}
	return at, nil
}
