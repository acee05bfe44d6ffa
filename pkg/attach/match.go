// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
)

// Symbols that tell what a file is.
const (
	loaderSymbol = "_rtld_global"         // in glibc's ld.so only (GLIBC_PRIVATE)
	glibcSymbol  = "gnu_get_libc_version" // in glibc, also where it is linked in statically
	startSymbol  = "__libc_start_main"    // in every libc
)

// ownMallocs are functions that tell an allocator from a libc, or from a program
// that links one in: jemalloc under its usual prefixes, gperftools, Google's
// tcmalloc, mimalloc.
var ownMallocs = []string{
	"mallocx", "je_mallocx", "_rjem_mallocx", "je_arrow_mallocx",
	"tc_malloc", "TCMallocInternalMalloc", "mi_malloc",
}

// matcher finds the functions of a table in files. It is immutable.
type matcher struct {
	table []alloc.Function
	rows  map[string]int
	names []string // of the table and of what tells files apart
}

func newMatcher(table []alloc.Function) *matcher {
	m := &matcher{table: table, rows: make(map[string]int, len(table))}
	m.names = append(m.names, loaderSymbol, glibcSymbol, startSymbol)
	m.names = append(m.names, ownMallocs...)
	for i, fn := range table {
		if _, ok := m.rows[fn.Name]; !ok { // the rows behind are for moved arguments
			m.rows[fn.Name] = i
			m.names = append(m.names, fn.Name)
		}
	}
	slices.Sort(m.names)
	m.names = slices.Compact(m.names)
	return m
}

// candidate is a function of the table that a file defines.
type candidate struct {
	row  int
	fn   *alloc.Function
	sym  elfsym.Symbol
	code []byte
}

// file finds and places the probes of a file. An error comes with what could be
// found all the same.
func (m *matcher) file(file *File, image *elfsym.File, mapped *mappedFile) (matched, error) {
	syms, lookupErr := image.Lookup(m.names...)
	if lookupErr != nil {
		lookupErr = fmt.Errorf("looking up allocation functions: %w", lookupErr)
	}
	own := slices.ContainsFunc(ownMallocs, func(name string) bool { return defined(syms, name) })
	file.GLIBC = defined(syms, glibcSymbol) && !own

	var r matched
	candidates := m.candidates(file, syms, own || isAllocator(syms), &r)
	if len(candidates) == 0 {
		return r, lookupErr
	}
	if defined(syms, loaderSymbol) {
		r.skips = append(r.skips, Skip{File: file.Path, Cause: SkipLoader,
			Detail: "the dynamic loader's own functions, used before libc is up"})
		return r, lookupErr
	}
	for i := range candidates {
		c := &candidates[i]
		c.code = readCode(image, c.sym)
	}
	forwards := m.forwards(image, syms, candidates)
	errs := []error{lookupErr}
	for i := range candidates {
		c := &candidates[i]
		if to := forwards[c.sym.Value]; to != "" {
			r.skips = append(r.skips, Skip{File: file.Path, Function: c.fn.Name, Cause: SkipForwards,
				Detail: "it only jumps to " + to})
			continue
		}
		errs = append(errs, m.place(file, image, mapped, c, &r))
	}
	return r, errors.Join(errs...)
}

func defined(syms map[string]elfsym.Symbol, name string) bool {
	_, ok := syms[name]
	return ok
}

// isAllocator reports whether a file's C++ operators are an allocator's own: it
// defines malloc beside them and is no libc. A program that links libc and
// libstdc++ in statically defines all of these.
func isAllocator(syms map[string]elfsym.Symbol) bool {
	return defined(syms, "malloc") && defined(syms, "_Znwm") && !defined(syms, startSymbol)
}

// candidates returns the functions that the file defines, one for each address,
// in the order of the table.
func (m *matcher) candidates(file *File, syms map[string]elfsym.Symbol, allocator bool, r *matched) []candidate {
	var found []candidate
	for name, sym := range syms {
		row, ok := m.rows[name]
		if !ok || m.table[row].AllocatorOnly && !allocator {
			continue
		}
		switch sym.Type {
		case elf.STT_FUNC, elf.STT_NOTYPE: // the latter in assembly code
			found = append(found, candidate{row: row, fn: &m.table[row], sym: sym})
		case elf.STT_GNU_IFUNC:
			r.skips = append(r.skips, Skip{File: file.Path, Function: name, Cause: SkipIndirect,
				Detail: "which code it stands for is chosen at run time (IFUNC)"})
		}
	}
	slices.SortFunc(r.skips, func(a, b Skip) int { return cmp.Compare(a.Function, b.Function) })
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.row, b.row) })
	seen := map[uint64]bool{}
	return slices.DeleteFunc(found, func(c candidate) bool {
		again := seen[c.sym.Value]
		seen[c.sym.Value] = true
		return again
	})
}

// place adds the probe of a candidate to the result.
func (m *matcher) place(file *File, image *elfsym.File, mapped *mappedFile, c *candidate, r *matched) error {
	placement, err := Place(c.code, c.sym.Value, image.Machine(), c.fn)
	if err != nil {
		return err
	}
	row, placement := m.number(c.row, placement)
	offset, ok := image.VaddrToOffset(c.sym.Value + placement.Offset)
	if !ok || !mapped.covers(offset) {
		r.skips = append(r.skips, Skip{File: file.Path, Function: c.fn.Name, Cause: SkipUnmapped,
			Detail: "its code is not mapped executable"})
		return nil
	}
	r.probes = append(r.probes, Probe{
		File:      file,
		Row:       row,
		Function:  &m.table[row],
		Vaddr:     c.sym.Value,
		Offset:    offset,
		Placement: placement,
		Cookie:    uint64(row),
	})
	return nil
}

// number returns the row that tells where a function's arguments are at a
// placement. If the table has none, the placement moves to where they have not
// moved.
func (m *matcher) number(row int, p Placement) (int, Placement) {
	if p.Args == nil {
		return row, p
	}
	if moved := slices.Index(m.table, *p.function(&m.table[row])); moved >= 0 {
		return moved, p
	}
	return row, start("(the first)", "the table has no row for where the arguments are at "+p.String())
}

// readCode reads a function's code, or as much as there is of it.
func readCode(image *elfsym.File, sym elfsym.Symbol) []byte {
	size := sym.Size
	if size == 0 {
		size = unknownCode
		if start, end, ok := image.FunctionRange(sym.Value); ok && start == sym.Value {
			size = end - start
		}
	}
	code := make([]byte, min(size, maxCode))
	n, err := image.ReadVaddr(code, sym.Value)
	if err != nil {
		code = code[:n]
	}
	return code
}
