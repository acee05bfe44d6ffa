// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Go function table (.gopclntab) starts with this header, struct pcHeader of
// the Go runtime's symtab.go: the magic number, two zero bytes, the unit of a
// pc, the size of a pointer, then words. Layouts older than Go 1.16 are not
// read by the extractor.
const (
	goMagic116 = 0xfffffffa
	goMagic118 = 0xfffffff0
	goMagic120 = 0xfffffff1

	goFixedHeader = 8     // bytes before the words
	goPtrSize     = 8     // 64-bit machines only
	goFuncMin     = 8 * 4 // fixed int32 fields of struct _func after its pc
)

// findGoTable finds the table of Go functions. In position-independent
// executables of older linkers it has no section of its own and stands
// somewhere in the relocated read-only data.
func (s *source) findGoTable(named map[string]section) (section, bool, error) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if x, ok := named[name]; ok {
			return x, true, nil
		}
	}
	x, ok := named[".data.rel.ro"]
	if _, isGo := named[".go.buildinfo"]; !isGo || !ok || x.size > x.limit {
		return section{}, false, nil
	}
	at, err := s.findGoMagic(x)
	if err != nil {
		return section{}, false, fmt.Errorf("searching %s: %w", x.name, err)
	}
	if at < 0 {
		return section{}, false, nil
	}
	x.addr, x.off, x.size = x.addr+uint64(at), x.off+at, x.size-at
	return x, true, nil
}

// findGoMagic returns the offset in x of a table's header, or -1. Headers are
// aligned to 8 bytes.
func (s *source) findGoMagic(x section) (int64, error) {
	unit := byte(1)
	if elf.Machine(s.header.Machine) == elf.EM_AARCH64 {
		unit = 4
	}
	const chunk = 1 << 16
	buf := make([]byte, chunk)
	for at := int64(0); at+goFixedHeader <= x.size; at += chunk {
		n, err := s.r.ReadAt(buf[:min(chunk, x.size-at)], x.off+at)
		if err != nil && !errors.Is(err, io.EOF) {
			return -1, err
		}
		for i := 0; i+goFixedHeader <= n; i += 8 {
			if _, ok := goLayout(buf[i:n]); ok && buf[i+6] == unit {
				return at + int64(i), nil
			}
		}
	}
	return -1, nil
}

// goTable is what a table's header says.
type goTable struct {
	is118       bool // Go 1.18 or later: 32-bit entries relative to the text
	funcs       uint64
	files       uint64
	cutab       []byte // files of each compilation unit
	pctab       []byte // tables of values by pc
	functab     []byte // pc -> offset of a function in functab itself
	entry, skip int    // sizes of an entry, and of the pc in a function
}

// goLayout says whether a table's header of a known version stands at data.
func goLayout(data []byte) (is118, ok bool) {
	if len(data) < goFixedHeader || data[4] != 0 || data[5] != 0 || data[7] != goPtrSize {
		return false, false
	}
	switch binary.LittleEndian.Uint32(data) {
	case goMagic116:
		return false, true
	case goMagic118, goMagic120:
		return true, true
	}
	return false, false
}

// parseGoTable reads the header of a table.
func parseGoTable(data []byte) (*goTable, error) {
	is118, ok := goLayout(data)
	words := 7
	if is118 {
		words++ // textStart stands before the offsets
	}
	if !ok || len(data) < goFixedHeader+8*words {
		return nil, fmt.Errorf("%w: Go function table of unknown form", ErrCorrupt)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(data[goFixedHeader+8*i:]) }
	t := &goTable{is118: is118, funcs: word(0), files: word(1), entry: 16, skip: 8}
	if is118 {
		t.entry, t.skip = 8, 4
	}
	cut := make([]uint64, 4) // offsets of cutab, filetab, pctab, functab
	for i := range cut {
		cut[i] = word(words - 4 + i)
	}
	if cut[0] > cut[1] || cut[1] > cut[2] || cut[2] > cut[3] || cut[3] > uint64(len(data)) {
		return nil, fmt.Errorf("%w: Go function table out of order", ErrCorrupt)
	}
	t.cutab, t.pctab, t.functab = data[cut[0]:cut[1]], data[cut[2]:cut[3]], data[cut[3]:]
	if t.funcs >= uint64(len(t.functab)/t.entry) {
		return nil, fmt.Errorf("%w: Go function table of %d functions", ErrCorrupt, t.funcs)
	}
	return t, nil
}

// checkGoTable tells whether the extractor can be given a Go function table.
// It makes a delta of each step of each function's stack pointer table, and
// any number of functions can name the same table, so that without this check
// a table of 100 MB could ask for terabytes.
func checkGoTable(data []byte) error {
	t, err := parseGoTable(data)
	if err != nil {
		return err
	}
	if t.files > maxGoFiles || len(t.cutab)/4 > maxGoUnits {
		return fmt.Errorf("%w: %d Go source files in %d unit entries", ErrTooLarge, t.files, len(t.cutab)/4)
	}
	steps, read := 0, 0
	for i := range int(t.funcs) {
		sp, file, ok := t.tables(i)
		if !ok {
			return fmt.Errorf("%w: Go function %d lies outside the table", ErrCorrupt, i)
		}
		if file != 0 {
			_, n := walkGoTable(t.pctab, file, 1)
			read += n
		}
		if sp != 0 {
			k, n := walkGoTable(t.pctab, sp, maxGoSteps-steps)
			steps, read = steps+k, read+n
		}
		if steps >= maxGoSteps || read >= maxGoBytes {
			return fmt.Errorf("%w: Go stack tables of over %d steps or %d bytes", ErrTooLarge, maxGoSteps, maxGoBytes)
		}
	}
	return nil
}

// tables returns the offsets in pctab of function i's tables of stack pointer
// and file: fields pcsp and pcfile of struct _func, which follow the pc,
// nameOff, args and deferreturn.
func (t *goTable) tables(i int) (sp, file int32, ok bool) {
	e := t.functab[i*t.entry:]
	off := uint64(binary.LittleEndian.Uint32(e[4:]))
	if !t.is118 {
		off = binary.LittleEndian.Uint64(e[8:])
	}
	n := uint64(len(t.functab))
	if off > n || n-off < uint64(t.skip)+goFuncMin {
		return 0, 0, false
	}
	f := t.functab[off+uint64(t.skip):]
	sp = int32(binary.LittleEndian.Uint32(f[12:]))
	file = int32(binary.LittleEndian.Uint32(f[16:]))
	return sp, file, true
}

// walkGoTable counts the steps and bytes of the table at off, up to limit
// steps. A step is two variable-length integers, value and pc; a zero byte in
// place of the first ends the table.
func walkGoTable(pctab []byte, off int32, limit int) (steps, read int) {
	if off < 0 || int(off) > len(pctab) {
		return 0, 0
	}
	rest := pctab[off:]
	for steps < limit && len(rest) > 0 && rest[0] != 0 {
		for range 2 {
			n := 0
			for n < len(rest) && rest[n]&0x80 != 0 {
				n++
			}
			n = min(n+1, len(rest))
			rest, read = rest[n:], read+n
		}
		steps++
	}
	return steps, read
}
