// SPDX-License-Identifier: Apache-2.0

// Package proc tells what a process is: its identity, mappings, threads,
// memory totals and namespaces, read from /proc and never from inside the
// process. It opens a target's files through the target's own root.
package proc

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
