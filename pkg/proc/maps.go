// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxMappings bounds the parsed lines: twice the highest vm.max_map_count
	// that a distribution sets (1,048,576 in Ubuntu 24.04; the kernel's default
	// is 65,530).
	maxMappings = 2 << 20
	// maxMapsLine bounds one line: the columns before the name take at most 100
	// bytes, a name PATH_MAX times four if every byte is escaped, and the kernel
	// prints names deeper than PATH_MAX whole, so four times that again.
	maxMapsLine = 64 << 10

	deletedSuffix = " (deleted)"
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64
	Offset     uint64 // file offset of Start
	Inode      uint64
	Dev        uint64 // as unix.Mkdev(major, minor)
	Read       bool
	Write      bool
	Exec       bool
	Shared     bool
	Path       string // unescaped, without " (deleted)"; "[heap]", "[vdso]"; empty for anonymous
	Deleted    bool
}

// FileBacked reports whether the mapping is of a real file.
func (m *Mapping) FileBacked() bool { return m.Inode != 0 && m.Path != "" && m.Path[0] == '/' }

// Maps reads the mappings of the process, sorted by Start. The kernel writes
// them page by page, so mappings that change meanwhile may be seen before or
// after the change.
func (p *Process) Maps() ([]Mapping, error) {
	f, err := p.openFile("maps")
	if err != nil {
		return nil, fmt.Errorf("reading mappings of process %d: %w", p.pid, err)
	}
	defer f.Close()
	maps, err := ParseMaps(f)
	if err != nil {
		return nil, fmt.Errorf("reading mappings of process %d: %w", p.pid, p.gone(err))
	}
	p.settleDeleted(maps)
	// An exiting process gives up its memory before it can be seen to have
	// exited.
	if len(maps) == 0 || !p.Alive() {
		return nil, fmt.Errorf("reading mappings of process %d: %w", p.pid, ErrExited)
	}
	return maps, nil
}

// settleDeleted corrects mappings of files whose real name ends in
// " (deleted)": the text is the same as for a deleted file without that ending,
// only a look at the file tells.
func (p *Process) settleDeleted(maps []Mapping) {
	for i := range maps {
		m := &maps[i]
		if !m.Deleted || !m.FileBacked() || kernelMade(m.Path) {
			continue
		}
		if i > 0 && maps[i-1].Inode == m.Inode && maps[i-1].Dev == m.Dev && strings.HasPrefix(maps[i-1].Path, m.Path) {
			m.Path, m.Deleted = maps[i-1].Path, maps[i-1].Deleted
			continue
		}
		real := *m
		real.Path, real.Deleted = m.Path+deletedSuffix, false
		if f, err := p.findInRoot(real); err == nil {
			f.Close()
			*m = real
		}
	}
}

// kernelMade reports whether a name was made by the kernel for a file without a
// directory entry. The kernel marks all of them as deleted.
func kernelMade(path string) bool {
	return strings.HasPrefix(path, "/memfd:") || strings.HasPrefix(path, "/SYSV") ||
		strings.HasPrefix(path, "/[aio]") || path == "/dev/zero" || strings.HasPrefix(path, "/anon_hugepage")
}

// ParseMaps parses the text of /proc/PID/maps (proc_pid_maps(5)) and sorts it by
// Start. Of an ambiguous text it takes the likely meaning: "\012" is a newline
// in a name (the kernel escapes newlines but not backslashes), a name that ends
// in " (deleted)" is that of a deleted file. The error is ErrCorrupt if a line
// is not of that format or a limit is exceeded.
func ParseMaps(r io.Reader) ([]Mapping, error) { return parseMaps(r, maxMappings) }

func parseMaps(r io.Reader, limit int) ([]Mapping, error) {
	var maps []Mapping
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 16<<10), maxMapsLine)
	for lines.Scan() {
		if len(maps) == limit {
			return nil, fmt.Errorf("%w: more than %d lines", ErrCorrupt, limit)
		}
		m, name, err := parseMapsLine(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrCorrupt, len(maps)+1, err)
		}
		m.setName(name, maps)
		maps = append(maps, m)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: line %d is longer than %d bytes", ErrCorrupt, len(maps)+1, maxMapsLine)
	} else if err != nil {
		return nil, err
	}
	slices.SortStableFunc(maps, func(a, b Mapping) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
	return maps, nil
}

// setName stores the name column, sharing the string with the mapping before:
// a file is usually mapped by several neighbours.
func (m *Mapping) setName(name []byte, before []Mapping) {
	if m.Inode != 0 {
		name, m.Deleted = bytes.CutSuffix(name, []byte(deletedSuffix))
	}
	if bytes.Contains(name, []byte(`\012`)) {
		name = bytes.ReplaceAll(name, []byte(`\012`), []byte("\n"))
	}
	if n := len(before); n > 0 && before[n-1].Path == string(name) {
		m.Path = before[n-1].Path
		return
	}
	m.Path = string(name)
}

// parseMapsLine parses the columns of show_vma_header_prefix
// (fs/proc/task_mmu.c): start-end perms offset major:minor inode, then spaces
// and the name, which may itself start and end with spaces only if it is not a
// path, which no kernel writes.
func parseMapsLine(line []byte) (m Mapping, name []byte, err error) {
	var column [5][]byte
	rest := line
	for i := range column {
		column[i], rest, _ = bytes.Cut(rest, []byte(" "))
		if len(column[i]) == 0 {
			return m, nil, fmt.Errorf("column %d is empty", i+1)
		}
	}
	start, end, ok := bytes.Cut(column[0], []byte("-"))
	if !ok {
		return m, nil, fmt.Errorf("no address range in %q", column[0])
	}
	major, minor, ok := bytes.Cut(column[3], []byte(":"))
	if !ok {
		return m, nil, fmt.Errorf("no device number in %q", column[3])
	}
	var number [6]uint64
	for i, field := range []struct {
		text       []byte
		base, bits int
	}{{start, 16, 64}, {end, 16, 64}, {column[2], 16, 64}, {major, 16, 32}, {minor, 16, 32}, {column[4], 10, 64}} {
		number[i], err = strconv.ParseUint(string(field.text), field.base, field.bits)
		if err != nil {
			return m, nil, err
		}
	}
	m = Mapping{
		Start: number[0], End: number[1], Offset: number[2],
		Dev: unix.Mkdev(uint32(number[3]), uint32(number[4])), Inode: number[5],
	}
	if m.Start >= m.End {
		return m, nil, fmt.Errorf("address range %q is empty", column[0])
	}
	if err := m.setPermissions(column[1]); err != nil {
		return m, nil, err
	}
	return m, bytes.TrimLeft(rest, " "), nil
}

func (m *Mapping) setPermissions(text []byte) error {
	if len(text) != 4 {
		return fmt.Errorf("permissions %q are not four characters", text)
	}
	m.Read, m.Write, m.Exec, m.Shared = text[0] == 'r', text[1] == 'w', text[2] == 'x', text[3] == 's'
	return nil
}
