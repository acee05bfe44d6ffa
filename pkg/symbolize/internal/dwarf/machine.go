// SPDX-License-Identifier: Apache-2.0

package dwarf

// machine is the line number machine, reduced to address, file and line.
// DWARF 5 section 6.2.2.
type machine struct {
	p     *program
	c     *cursor
	row   row
	ended bool // the row ends a sequence
	added []fileEntry
}

// reset prepares for the next sequence.
func (m *machine) reset() {
	m.row = row{file: 1, line: 1}
	m.ended = false
}

// step runs to the next row. It reports false at the end of the program and on
// an error.
func (m *machine) step() bool {
	for m.c.more() {
		op := m.c.u8()
		switch {
		case op >= m.p.opBase:
			adj := op - m.p.opBase
			m.row.addr += uint64(adj/m.p.lineRange) * m.p.minInst
			m.row.line += int64(m.p.lineBase) + int64(adj%m.p.lineRange)
			return m.c.err == nil
		case op == 0:
			if m.extended() {
				return m.c.err == nil
			}
		case op == lnsCopy:
			return m.c.err == nil
		case op == lnsAdvancePC:
			m.row.addr += m.c.uleb() * m.p.minInst
		case op == lnsAdvanceLine:
			m.row.line += m.c.sleb()
		case op == lnsSetFile:
			m.row.file = m.c.uleb()
		case op == lnsConstAddPC:
			m.row.addr += uint64((255-m.p.opBase)/m.p.lineRange) * m.p.minInst
		case op == lnsFixedAdvancePC:
			m.row.addr += uint64(m.c.u16())
		default:
			for range m.p.operands[op-1] {
				m.c.uleb()
			}
		}
	}
	return false
}

// extended runs an extended opcode and reports whether it makes a row.
func (m *machine) extended() bool {
	n := m.c.uleb()
	start := m.c.off()
	if n == 0 || n > m.c.end-start {
		m.c.fail()
		return false
	}
	switch m.c.u8() {
	case lneEndSequence:
		m.ended = true
	case lneSetAddress:
		if n == 9 {
			m.row.addr = m.c.u64()
		}
	case lneDefineFile:
		if len(m.added) < maxLineFiles {
			e := fileEntry{name: value{form: formString, u: m.c.off()}}
			m.c.skipString()
			e.dir = m.c.uleb()
			m.added = append(m.added, e)
		}
	}
	m.c.seek(start + n)
	return m.ended
}
