// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"fmt"
	"path"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

// Content types of the file tables of DWARF 5, section 6.2.4.1.
const (
	lnctPath = 1
	lnctDir  = 2
)

// fileEntry is a file of a line program.
type fileEntry struct {
	name value
	dir  uint64
}

// fileTable is the folders and files of a line program. Before DWARF 5 both
// count from 1: folder 0 is the unit's, file 0 is none.
type fileTable struct {
	dirs  []value
	files []fileEntry
	paths map[uint64]string // of the files asked for
}

// fileName returns the path of a file of a line program, "" if unknown.
func (d *Data) fileName(u *unit, p *program, i uint64) string {
	if p == nil {
		return ""
	}
	if p.files == nil {
		t, err := d.readFiles(p)
		if err != nil {
			d.keep(fmt.Errorf("files of the line program at %#x: %w", p.off, err))
		}
		t.paths = make(map[uint64]string)
		p.files = t
	}
	if s, ok := p.files.paths[i]; ok {
		return s
	}
	s, err := d.filePath(u, p, i)
	if err != nil {
		d.keep(err)
	}
	p.files.paths[i] = s
	return s
}

func (d *Data) filePath(u *unit, p *program, i uint64) (string, error) {
	t := p.files
	first := uint64(1)
	if p.version >= 5 {
		first = 0
	}
	if i < first || i-first >= uint64(len(t.files)) {
		return "", nil
	}
	f := t.files[i-first]
	name, err := d.lineText(u, f.name)
	if err != nil || name == "" || path.IsAbs(name) {
		return clean(name), err
	}
	unitDir, err := d.text(u, u.compDir)
	if err != nil {
		return clean(name), err
	}
	dir := ""
	if f.dir >= first && f.dir-first < uint64(len(t.dirs)) {
		if dir, err = d.lineText(u, t.dirs[f.dir-first]); err != nil {
			return clean(name), err
		}
	}
	if path.IsAbs(dir) {
		return path.Join(dir, name), nil
	}
	return path.Join(unitDir, dir, name), nil
}

// clean is path.Clean that leaves "" alone.
func clean(s string) string {
	if s == "" {
		return ""
	}
	return path.Clean(s)
}

// lineText resolves a string of a line program. One in place is in .debug_line.
func (d *Data) lineText(u *unit, v value) (string, error) {
	if v.form == formString {
		return d.line.str(v.u)
	}
	return d.text(u, v)
}

// readFiles reads a program's folders and files.
func (d *Data) readFiles(p *program) (*fileTable, error) {
	t := &fileTable{}
	c := d.line.at(p.tables, p.code)
	if p.version >= 5 {
		err := c.fileEntries(p, func(e fileEntry) { t.dirs = append(t.dirs, e.name) })
		if err == nil {
			err = c.fileEntries(p, func(e fileEntry) { t.files = append(t.files, e) })
		}
		return t, err
	}
	for len(t.dirs) < maxLineFiles {
		v := c.stringInPlace()
		if v.u == c.off()-1 || c.err != nil { // an empty string
			break
		}
		t.dirs = append(t.dirs, v)
	}
	for len(t.files) < maxLineFiles {
		v := c.stringInPlace()
		if v.u == c.off()-1 || c.err != nil {
			break
		}
		t.files = append(t.files, fileEntry{name: v, dir: c.uleb()})
		c.uleb() // modification time
		c.uleb() // length
	}
	t.files = append(t.files, p.added...)
	return t, c.err
}

func (c *cursor) stringInPlace() value {
	v := value{form: formString, u: c.off()}
	c.skipString()
	return v
}

// fileEntries reads one of the two tables of DWARF 5: first what an entry
// consists of, then the entries.
func (c *cursor) fileEntries(p *program, add func(fileEntry)) error {
	type field struct {
		content uint64
		form    form
	}
	fields := make([]field, c.u8())
	for i := range fields {
		fields[i] = field{c.uleb(), form(min(c.uleb(), 0xffff))}
	}
	n := c.uleb()
	if n > maxLineFiles {
		return fmt.Errorf("%d files: %w", n, elfsym.ErrTooLarge)
	}
	for range n {
		var e fileEntry
		for _, f := range fields {
			v := c.value(p.format, f.form, 0)
			switch f.content {
			case lnctPath:
				e.name = v
			case lnctDir:
				e.dir = v.u
			}
		}
		if c.err != nil {
			return c.err
		}
		add(e)
	}
	return c.err
}
