// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

const (
	// maxNesting bounds the search for a symbol around others. Real symbols
	// nest twice at most, a label in a function.
	maxNesting = 64
	// maxAliases bounds how many names of one address are read. glibc gives
	// an address up to nine.
	maxAliases = 32
)

// FuncTable answers which function stands at an address. It holds 24 bytes a
// symbol and reads names from the file when asked. It is immutable and safe
// for concurrent use as long as the File's reader is readable.
type FuncTable struct {
	f    *File
	strs [2]region // of .symtab and .dynsym
	rows []funcRow // by start, then size
}

// funcRow is one function symbol.
type funcRow struct {
	start  uint64
	size   uint32 // what exceeds 4 GiB is cut off
	name   uint32 // offset in a string table
	parent uint32 // one more than the last earlier row that reaches beyond start; 0 if none
	info   uint8  // type and binding
	tab    uint8  // index in strs
}

func (r *funcRow) end() uint64 { return r.start + uint64(r.size) }

// FuncTable returns the table of the file's functions, from .symtab and
// .dynsym. It is built once and shared. An unreadable table is an error, but
// what the other yields is returned with it.
func (f *File) FuncTable() (*FuncTable, error) { return f.funcs() }

func (f *File) buildFuncTable() (*FuncTable, error) {
	t := &FuncTable{f: f}
	var errs []error
	for i, find := range []func() (*symtab, error){f.symtab, f.dynsym} {
		tab, err := find()
		if tab != nil && err == nil {
			err = t.add(tab, uint8(i))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(t.rows, func(a, b funcRow) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.size, b.size),
			cmp.Compare(a.tab, b.tab), cmp.Compare(a.name, b.name))
	})
	t.rows = slices.Clip(t.rows)
	// The parents form chains that skip what has ended, so that a search visits
	// only rows around it. Each row is skipped once: linear.
	for i := 1; i < len(t.rows); i++ {
		p := uint32(i)
		for p > 0 && t.rows[p-1].end() <= t.rows[i].start {
			p = t.rows[p-1].parent
		}
		t.rows[i].parent = p
	}
	return t, errors.Join(errs...)
}

func (t *FuncTable) add(tab *symtab, id uint8) error {
	t.strs[id] = tab.str
	n := 0
	err := t.f.eachSymbol(tab, func(s *rawSymbol) bool {
		if t.f.isCode(s) {
			n++
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("counting functions: %w", err)
	}
	t.rows = slices.Grow(t.rows, n)
	return t.f.eachSymbol(tab, func(s *rawSymbol) bool {
		if t.f.isCode(s) && s.value+s.size >= s.value {
			t.rows = append(t.rows, funcRow{
				start: s.value, size: uint32(min(s.size, math.MaxUint32)), name: s.name, info: s.info, tab: id,
			})
		}
		return true
	})
}

// Len returns the number of symbols in the table.
func (t *FuncTable) Len() int { return len(t.rows) }

// Find returns the function that virtual address v is in: the innermost symbol
// whose size covers v. Where there is none, the nearest symbol before v is
// taken if it has no size, lies in the same section, and frames, the file with
// the unwind information of the same code (nil: the table's own file), does not
// say that v belongs to other code.
//
// Of several names for one function, those that other files can see come
// first, then those with fewer leading underscores, global before weak, shorter
// ones, and last the order of the alphabet: "malloc" rather than
// "__libc_malloc".
func (t *FuncTable) Find(v uint64, frames *File) (Symbol, bool) {
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].start > v }) - 1
	if i < 0 {
		return Symbol{}, false
	}
	at := i
	for range maxNesting {
		if v < t.rows[at].end() {
			return t.best(at, v)
		}
		p := t.rows[at].parent
		if p == 0 {
			break
		}
		at = int(p - 1)
	}
	if t.rows[i].size != 0 || !t.sameCode(t.rows[i].start, v, frames) {
		return Symbol{}, false
	}
	return t.best(i, v)
}

// sameCode reports whether a symbol without a size can reach to v.
func (t *FuncTable) sameCode(start, v uint64, frames *File) bool {
	if frames == nil {
		frames = t.f
	}
	a, ok1 := t.f.sectionIndexAt(start)
	b, ok2 := t.f.sectionIndexAt(v)
	if ok1 != ok2 || a != b {
		return false
	}
	if !frames.HasFunctionRanges() {
		return ok1
	}
	lo, _, ok := frames.FunctionRange(v)
	return ok && start >= lo
}

// best returns the preferred of the symbols that start where row i does and
// cover v. Rows of equal start are sorted by size, so i is the last of them.
func (t *FuncTable) best(i int, v uint64) (Symbol, bool) {
	var best Symbol
	found := false
	sized := t.rows[i].size != 0
	for n, j := 0, i; j >= 0 && t.rows[j].start == t.rows[i].start && n < maxAliases; n, j = n+1, j-1 {
		r := &t.rows[j]
		if sized && v >= r.end() {
			break
		}
		name, err := t.f.nameAt(t.strs[r.tab], uint64(r.name))
		if err != nil || name == "" || name[0] == '$' {
			continue // "$x" marks code on ARM
		}
		s := Symbol{
			Name: name, Value: r.start, Size: uint64(r.size),
			Type: elf.ST_TYPE(r.info), Bind: elf.ST_BIND(r.info),
		}
		if !found || compareAliases(s, best) < 0 {
			best, found = s, true
		}
	}
	return best, found
}

// compareAliases orders the names of one function by preference.
func compareAliases(a, b Symbol) int {
	return cmp.Or(
		cmp.Compare(localRank(a), localRank(b)),
		cmp.Compare(underscores(a.Name), underscores(b.Name)),
		cmp.Compare(bindRank(a.Bind), bindRank(b.Bind)),
		cmp.Compare(len(a.Name), len(b.Name)),
		strings.Compare(a.Name, b.Name),
		cmp.Compare(b.Size, a.Size),
	)
}

// localRank puts labels without a type behind local functions, and those
// behind what is visible outside.
func localRank(s Symbol) int {
	switch {
	case s.Bind != elf.STB_LOCAL:
		return 0
	case s.Type != elf.STT_NOTYPE:
		return 1
	}
	return 2
}

// underscores counts the leading underscores of a name, not counting those of
// the C++ and Rust manglings "_Z" and "_R".
func underscores(name string) int {
	n := len(name) - len(strings.TrimLeft(name, "_"))
	if n == 1 && len(name) > 1 && (name[1] == 'Z' || name[1] == 'R') {
		return 0
	}
	return n
}
