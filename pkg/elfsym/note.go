// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
)

// ntGNUBuildID is the type of the note of owner "GNU" with the build id.
const ntGNUBuildID = 3

// note is one entry of a note section or segment.
type note struct {
	owner string
	typ   uint32
	desc  []byte
}

// eachNote calls fn for the notes in b until fn returns false. align is the
// alignment of name and descriptor: 4, or 8 in a segment of that alignment
// (.note.gnu.property). It ends without an error at the first entry that does
// not fit: what came before is good.
func eachNote(b []byte, align uint64, fn func(note) bool) {
	for len(b) >= 12 {
		namesz, descsz := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		typ := le.Uint32(b[8:])
		b = b[12:]
		if namesz > uint64(len(b)) {
			return
		}
		name := b[:namesz]
		// The header is 12 bytes long: pad from the entry's start.
		skip := (12+namesz+align-1)&^(align-1) - 12
		if skip > uint64(len(b)) || descsz > uint64(len(b))-skip {
			return
		}
		desc := b[skip : skip+descsz]
		if !fn(note{owner: string(bytes.TrimRight(name, "\x00")), typ: typ, desc: desc}) {
			return
		}
		next := skip + (descsz+align-1)&^(align-1)
		b = b[min(next, uint64(len(b))):]
	}
}

// BuildID returns the GNU build id in lower-case hex, "" if the file has none
// or it is not readable. Sections are asked before segments: in a file of
// separate debug information (objcopy --only-keep-debug) the segments' offsets
// are void.
func (f *File) BuildID() string { return f.buildID() }

func (f *File) findBuildID() string {
	for i := range f.sections {
		if s := &f.sections[i]; s.typ == elf.SHT_NOTE {
			if id := f.buildIDIn(s.off, s.size); id != "" {
				return id
			}
		}
	}
	for _, p := range f.progs {
		if p.typ == elf.PT_NOTE {
			if id := f.buildIDIn(p.off, p.filesz); id != "" {
				return id
			}
		}
	}
	return ""
}

// buildIDIn returns the build id in a note region. Notes of 8-byte alignment
// are never of this kind, but can share the region in a segment, whose entries
// are then still padded to 4.
func (f *File) buildIDIn(off, size uint64) string {
	b, err := f.read(off, size, maxNotes)
	if err != nil {
		return ""
	}
	var id string
	eachNote(b, 4, func(n note) bool {
		if n.owner == "GNU" && n.typ == ntGNUBuildID && len(n.desc) > 0 && len(n.desc) <= maxBuildID {
			id = hex.EncodeToString(n.desc)
		}
		return id == ""
	})
	return id
}
