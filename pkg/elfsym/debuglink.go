// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// DebugLink returns the content of .gnu_debuglink: the base name of the file
// with the debug information that was split off, and that file's CRC-32 (IEEE).
// A name that is not a plain base name is not returned, since it is meant to be
// joined to a folder.
func (f *File) DebugLink() (name string, crc uint32, ok bool) {
	b, err := f.small(".gnu_debuglink", maxDebugLink)
	if err != nil || len(b) < 8 {
		return "", 0, false
	}
	name, rest, ok := splitName(b)
	pad := (len(name)+1+3)&^3 - (len(name) + 1)
	if !ok || strings.Contains(name, "/") || len(rest) < pad+4 {
		return "", 0, false
	}
	return name, le.Uint32(rest[pad:]), true
}

// DebugAltLink returns the content of .gnu_debugaltlink: the path of the file
// into which dwz moved what several debug files have in common, and its build
// id in lower-case hex. The path is the packager's and not to be trusted.
func (f *File) DebugAltLink() (path, buildID string, ok bool) {
	b, err := f.small(".gnu_debugaltlink", maxDebugLink+4096)
	if err != nil {
		return "", "", false
	}
	path, id, ok := splitName(b)
	if !ok || len(id) == 0 || len(id) > maxBuildID {
		return "", "", false
	}
	return path, hex.EncodeToString(id), true
}

// small reads a section that is small in every real file.
func (f *File) small(name string, limit uint64) ([]byte, error) {
	s, err := f.sectionNamed(name)
	if err != nil {
		return nil, err
	}
	return f.read(s.off, s.size, limit)
}

// splitName splits a NUL-terminated file name from what follows.
func splitName(b []byte) (name string, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i <= 0 {
		return "", nil, false
	}
	name = string(b[:i])
	return name, b[i+1:], name != "." && name != ".."
}
