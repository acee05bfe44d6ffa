// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Symbol is a defined symbol.
type Symbol struct {
	Name  string // without a version suffix ("@@GLIBC_2.34")
	Value uint64 // virtual address in the file; for elf.STT_TLS an offset in the thread's block
	Size  uint64 // in bytes; 0 where the author of assembly code stated none
	Type  elf.SymType
	Bind  elf.SymBind
}

// Symbols returns the functions and objects of .symtab and .dynsym, merged and
// sorted by Value, then Name. The result is cached and shared: do not modify.
// For a large library it holds tens of MB: ask [File.Lookup] for names and
// [File.FuncTable] for addresses where that suffices.
//
// An unreadable table is an error, but what was read of the other is returned
// with it. A file without symbols yields an empty slice.
func (f *File) Symbols() ([]Symbol, error) { return f.symbols() }

// DynSymbols returns the functions and objects of .dynsym, which every
// dynamically linked file has, sorted by Value, then Name. It is cached and
// shared: do not modify.
func (f *File) DynSymbols() ([]Symbol, error) { return f.dynsyms() }

func (f *File) mergeSymbols() ([]Symbol, error) {
	dyn, err1 := f.DynSymbols()
	t, err2 := f.symtab()
	if t == nil {
		return dyn, errors.Join(err1, err2)
	}
	all, err2 := f.readSymbols(t)
	all = append(all, dyn...)
	slices.SortFunc(all, compareSymbols)
	all = slices.CompactFunc(all, func(a, b Symbol) bool { return a.Value == b.Value && a.Name == b.Name })
	return all, errors.Join(err1, err2)
}

func (f *File) readDynSymbols() ([]Symbol, error) {
	t, err := f.dynsym()
	if t == nil {
		return nil, err
	}
	return f.readSymbols(t)
}

// compareSymbols orders by address, then name, then the most visible first, so
// that of equal ones the best is kept.
func compareSymbols(a, b Symbol) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), strings.Compare(a.Name, b.Name), compareRank(a, b))
}

// compareRank orders symbols of one name or address: the most visible first,
// then the larger one, since a size of 0 says less.
func compareRank(a, b Symbol) int {
	return cmp.Or(cmp.Compare(bindRank(a.Bind), bindRank(b.Bind)), cmp.Compare(b.Size, a.Size))
}

func bindRank(b elf.SymBind) int {
	switch b {
	case elf.STB_GLOBAL:
		return 0
	case elf.STB_LOOS: // STB_GNU_UNIQUE
		return 1
	case elf.STB_WEAK:
		return 2
	}
	return 3
}

// readSymbols returns the functions and objects of one table, sorted.
func (f *File) readSymbols(t *symtab) ([]Symbol, error) {
	names, err := f.readString(t.str)
	if err != nil {
		return nil, fmt.Errorf("reading symbol names: %w", err)
	}
	var syms []Symbol
	err = f.eachSymbol(t, func(s *rawSymbol) bool {
		if !f.isAddress(s) {
			return true
		}
		name := nameIn(names, uint64(s.name))
		if name == "" || s.typ() == elf.STT_NOTYPE && name[0] == '$' {
			return true // "$x" and "$d" mark code and data on ARM
		}
		syms = append(syms, Symbol{Name: name, Value: s.value, Size: s.size, Type: s.typ(), Bind: s.bind()})
		return true
	})
	slices.SortFunc(syms, compareSymbols)
	return syms, err
}

// readString reads a string table as one string, of which the names are parts.
func (f *File) readString(r region) (string, error) {
	if r.size > maxSection {
		return "", fmt.Errorf("%d bytes: %w", r.size, ErrTooLarge)
	}
	if !f.span(r.off, r.size) {
		return "", ErrCorrupt
	}
	var s strings.Builder
	s.Grow(int(r.size))
	_, err := io.Copy(&s, io.NewSectionReader(f.r, int64(r.off), int64(r.size)))
	return s.String(), err
}

// nameIn returns the symbol name at off of a string table, without its version.
func nameIn(tab string, off uint64) string {
	if off >= uint64(len(tab)) {
		return ""
	}
	s := tab[off:min(uint64(len(tab)), off+maxName)]
	n := strings.IndexByte(s, 0)
	if n < 0 {
		return ""
	}
	return trimVersion(s[:n])
}

// trimVersion removes the version that linkers append to names in .symtab.
func trimVersion(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 {
		return name[:i]
	}
	return name
}
