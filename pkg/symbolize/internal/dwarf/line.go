// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"fmt"
	"sort"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

// Opcodes of line programs, DWARF 5 section 6.2.5.
const (
	lnsCopy           = 1
	lnsAdvancePC      = 2
	lnsAdvanceLine    = 3
	lnsSetFile        = 4
	lnsConstAddPC     = 8
	lnsFixedAdvancePC = 9

	lneEndSequence = 1
	lneSetAddress  = 2
	lneDefineFile  = 3
)

// rowsPerMark is how many rows are replayed at most to find one: 3 us.
const rowsPerMark = 1024

// program is a line program. Its rows are not kept: only the state of the line
// machine at every 1024th, from where a lookup replays them.
type program struct {
	format
	off, end  uint64 // in .debug_line
	code      uint64 // offset of the first opcode
	tables    uint64 // offset of the folders and files
	minInst   uint64
	lineBase  int8
	lineRange uint8
	opBase    uint8
	operands  []uint8 // of the standard opcodes: opcode-1 -> number of uleb

	marks  []mark
	seqs   []sequence
	byAddr index // of seqs

	files *fileTable
	added []fileEntry // files that opcodes define
}

// row is a row of the line table: the code from addr on comes from this line.
type row struct {
	addr uint64
	file uint64
	line int64
}

// mark is the state of the line machine after a row, or at a sequence's start.
type mark struct {
	row
	next uint64 // offset of the opcode that follows
}

// sequence is a run of rows of ascending address: the marks in it.
type sequence struct{ first, last int }

// program returns the line program of a unit, nil if it has none.
func (d *Data) program(u *unit) (*program, error) {
	if !u.stmtList.present() {
		return nil, nil
	}
	off := u.stmtList.u
	if p, ok := d.programs[off]; ok {
		return p, nil
	}
	p, err := d.readProgram(off)
	if err != nil {
		p = nil
		err = fmt.Errorf("line program at %#x: %w", off, err)
	}
	d.programs[off] = p
	return p, err
}

// readProgram reads a program's header and runs it once to place the marks.
func (d *Data) readProgram(off uint64) (*program, error) {
	p := &program{off: off}
	c := d.line.at(off, d.line.size)
	n, is64 := c.unitLength()
	p.is64 = is64
	if c.err == nil && n > c.end-c.off() {
		return nil, d.line.corrupt(off)
	}
	p.end = c.off() + n
	c.end = p.end
	p.version = c.u16()
	if c.err == nil && (p.version < 2 || p.version > 5) {
		return nil, fmt.Errorf("version %d: %w", p.version, elfsym.ErrCorrupt)
	}
	if p.version == 5 {
		if addrSize := c.u8(); c.err == nil && addrSize != 8 {
			return nil, fmt.Errorf("addresses of %d bytes: %w", addrSize, elfsym.ErrCorrupt)
		}
		c.u8() // segment selector size
	}
	n = c.word(is64)
	if c.err == nil && n > c.end-c.off() {
		return nil, d.line.corrupt(off)
	}
	p.code = c.off() + n
	p.minInst = uint64(c.u8())
	if p.version >= 4 {
		c.u8() // operations an instruction: 1, except on VLIW machines
	}
	c.u8() // whether rows start as statements
	p.lineBase, p.lineRange, p.opBase = int8(c.u8()), c.u8(), c.u8()
	for i := uint8(1); i < p.opBase; i++ {
		p.operands = append(p.operands, c.u8())
	}
	p.tables = c.off()
	if c.err != nil {
		return nil, c.err
	}
	if p.lineRange == 0 || p.opBase == 0 || p.tables > p.code {
		return nil, d.line.corrupt(off)
	}
	return p, d.placeMarks(p)
}

// placeMarks runs the whole program. What is sound of a broken one is kept.
func (d *Data) placeMarks(p *program) error {
	m := machine{p: p, c: d.line.at(p.code, p.end), row: row{file: 1, line: 1}}
	var start uint64 // address of the sequence's first row
	first, rows := len(p.marks), 0
	for m.step() {
		if m.ended {
			if rows == 0 || start == 0 || m.row.addr <= start { // empty, or thrown away by the linker
				p.marks = p.marks[:first]
			} else {
				p.byAddr.add(start, m.row.addr, uint32(len(p.seqs)))
				p.seqs = append(p.seqs, sequence{first, len(p.marks)})
			}
			m.reset()
			first, rows = len(p.marks), 0
			continue
		}
		if rows == 0 {
			start = m.row.addr
		}
		if rows%rowsPerMark == 0 {
			if len(p.marks) == maxLineMarks {
				return fmt.Errorf("more than %d marks: %w", maxLineMarks, elfsym.ErrTooLarge)
			}
			p.marks = append(p.marks, mark{m.row, m.c.off()})
		}
		rows++
	}
	p.added = m.added
	p.byAddr.sort()
	return m.c.err
}

// findRow returns the row for an address: the last at or before it.
func (d *Data) findRow(p *program, pc uint64) (row, bool) {
	r, ok := p.byAddr.find(pc)
	if !ok {
		return row{}, false
	}
	seq := p.seqs[r.ref]
	marks := p.marks[seq.first:seq.last]
	n := sort.Search(len(marks), func(i int) bool { return marks[i].addr > pc })
	if n == 0 {
		return row{}, false
	}
	best := marks[n-1].row
	m := machine{p: p, c: d.line.at(marks[n-1].next, p.end), row: best}
	for i := 0; i <= rowsPerMark && m.step() && !m.ended && m.row.addr <= pc; i++ {
		best = m.row
	}
	return best, true
}

// position returns the source position of an address, "" and 0 if unknown.
func (d *Data) position(u *unit, p *program, pc uint64) (string, int) {
	if p == nil {
		return "", 0
	}
	r, ok := d.findRow(p, pc)
	if !ok {
		return "", 0
	}
	line := r.line
	if line < 0 || line > 1<<30 {
		line = 0
	}
	return d.fileName(u, p, r.file), int(line)
}
