// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"debug/elf"
	"maps"
	"slices"
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/elfsym/elftest"
)

// sections is the content of a file's debug sections, by name.
type sections map[string][]byte

// file makes an ELF file of them.
func (s sections) file(tb testing.TB) *elfsym.File {
	tb.Helper()
	var b elftest.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		b.Section(elftest.Section{Name: name, Type: elf.SHT_PROGBITS, Content: s[name]})
	}
	raw := b.Bytes()
	f, err := elfsym.Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// with returns a copy with one section replaced.
func (s sections) with(name string, content []byte) sections {
	c := maps.Clone(s)
	c[name] = content
	return c
}

// asm assembles sections.
type asm []byte

func (a *asm) u8(v ...uint8)  { *a = append(*a, v...) }
func (a *asm) u16(v uint16)   { *a = le.AppendUint16(*a, v) }
func (a *asm) u32(v uint32)   { *a = le.AppendUint32(*a, v) }
func (a *asm) u64(v uint64)   { *a = le.AppendUint64(*a, v) }
func (a *asm) str(s string)   { *a = append(append(*a, s...), 0) }
func (a *asm) bytes(b []byte) { *a = append(*a, b...) }

func (a *asm) uleb(v uint64) {
	for v >= 0x80 {
		a.u8(uint8(v) | 0x80)
		v >>= 7
	}
	a.u8(uint8(v))
}

// decl adds an abbreviation: pairs of attribute and form.
func (a *asm) decl(code, tag uint64, children uint8, pairs ...uint64) {
	a.uleb(code)
	a.uleb(tag)
	a.u8(children)
	for _, p := range append(pairs, 0, 0) {
		a.uleb(p)
	}
}

// Codes of the abbreviations of the sample.
const (
	cUnit = 1 + iota
	cFunc
	cInlined
	cAbstract
	cOther
	cRanged
	cFar
)

// sampleAbbrevs declares what the sample's entries consist of.
func sampleAbbrevs() []byte {
	var a asm
	a.decl(cUnit, tagCompileUnit, 1, attrName, uint64(formString), attrCompDir, uint64(formString),
		attrLowPC, uint64(formAddr), attrHighPC, uint64(formData8), attrStmtList, uint64(formSecOffset))
	a.decl(cFunc, tagSubprogram, 1, attrName, uint64(formString), attrDeclLine, uint64(formData1),
		attrLowPC, uint64(formAddr), attrHighPC, uint64(formData8))
	a.decl(cInlined, tagInlined, 1, attrOrigin, uint64(formRef4), attrLowPC, uint64(formAddr),
		attrHighPC, uint64(formData8), attrCallFile, uint64(formData1), attrCallLine, uint64(formData1))
	a.decl(cAbstract, tagSubprogram, 0, attrLinkageName, uint64(formString), attrDeclLine, uint64(formData1))
	a.decl(cOther, 0x0b, 1)
	a.decl(cRanged, tagSubprogram, 0, attrName, uint64(formStrp), attrRanges, uint64(formSecOffset))
	a.decl(cFar, tagSubprogram, 0, attrOrigin, uint64(formRefAddr))
	a.u8(0)
	return a
}

// unitOf wraps entries in a unit of DWARF 4 at a section offset of 0. Entries
// start at offset 11.
func unitOf(entries []byte) []byte {
	var a asm
	a.u32(uint32(len(entries) + 7))
	a.u16(4)
	a.u32(0)
	a.u8(8)
	a.bytes(entries)
	return a
}

// root adds the entry of a unit with code at [0x1000, 0x2000).
func (a *asm) root() {
	a.u8(cUnit)
	a.str("a.c")
	a.str("/src")
	a.u64(0x1000)
	a.u64(0x1000)
	a.u32(0)
}

func (a *asm) fn(name string, line uint8, lo, size uint64) {
	a.u8(cFunc)
	a.str(name)
	a.u8(line)
	a.u64(lo)
	a.u64(size)
}

func (a *asm) inlined(origin uint32, lo, size uint64, file, line uint8) {
	a.u8(cInlined)
	a.u32(origin)
	a.u64(lo)
	a.u64(size)
	a.u8(file, line)
}

// sampleLines is a line program of DWARF 4: two rows a function.
func sampleLines(ops []byte) []byte {
	var h asm
	h.u8(1, 1, 1, 0xfb, 14, 13)              // min_inst, max_ops, is_stmt, line_base -5, line_range, opcode_base
	h.u8(0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1) // operands
	h.str("inc")                             // folder 1
	h.u8(0)                                  //
	h.str("a.c")                             // file 1
	h.u8(0, 0, 0)                            //
	h.str("b.h")                             // file 2, in folder 1
	h.u8(1, 0, 0)                            //
	h.u8(0)                                  //
	var a asm
	a.u32(uint32(2 + 4 + len(h) + len(ops)))
	a.u16(4)
	a.u32(uint32(len(h)))
	a.bytes(h)
	a.bytes(ops)
	return a
}

// sampleOps has line 10 at 0x1000, b.h line 3 at 0x1020, line 12 at 0x1030, and
// ends at 0x2000.
func sampleOps() []byte {
	var o asm
	o.u8(0, 9, lneSetAddress)
	o.u64(0x1000)
	o.u8(lnsAdvanceLine, 9, lnsCopy)
	o.u8(lnsAdvancePC, 0x20, lnsSetFile, 2, lnsAdvanceLine, 0x79, lnsCopy)
	o.u8(lnsAdvancePC, 0x10, lnsSetFile, 1, lnsAdvanceLine, 9, lnsCopy)
	o.u8(lnsAdvancePC)
	o.uleb(0x1fd0 - 0x1000)
	o.u8(0, 1, lneEndSequence)
	return o
}

// sample is a unit with outer() at 0x1000-0x1100, into which inner() is inlined
// at 0x1020-0x1030.
func sample() sections {
	var e asm
	e.root()
	abstract := 11 + len(e)
	e.u8(cAbstract)
	e.str("_Z5innerv")
	e.u8(2)
	e.fn("outer", 9, 0x1000, 0x100)
	e.u8(cOther)
	e.inlined(uint32(abstract), 0x1020, 0x10, 1, 11)
	e.u8(0, 0, 0, 0)
	return sections{
		".debug_info":   unitOf(e),
		".debug_abbrev": sampleAbbrevs(),
		".debug_line":   sampleLines(sampleOps()),
		".debug_str":    []byte("\x00ranged\x00"),
	}
}
