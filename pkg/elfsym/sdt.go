// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"errors"
	"fmt"
)

// ntStapSDT is the type of the notes of owner "stapsdt" that describe a probe.
const ntStapSDT = 3

// SDTNote is a statically defined tracing probe: one place in the code where
// <sys/sdt.h> put a nop. A probe that the compiler inlined or unrolled has
// several, each with operands of its own.
type SDTNote struct {
	Provider, Name string
	PC             uint64 // virtual address of the nop
	Base           uint64 // address that .stapsdt.base had at link time
	Semaphore      uint64 // virtual address of the 16-bit counter that enables the probe; 0 if it has none
	Args           string // operands in assembler syntax: "-8@%rdi 4@$3"
}

// SDTNotes returns the file's tracing probes in their order in .note.stapsdt,
// empty if it has none. Addresses are corrected for prelinking: by as much as
// .stapsdt.base has moved since the note was written. Format:
// sourceware.org/systemtap/wiki/UserSpaceProbeImplementation.
func (f *File) SDTNotes() ([]SDTNote, error) {
	s, err := f.sectionNamed(".note.stapsdt")
	if errors.Is(err, ErrNoSection) {
		return nil, nil
	}
	b, err := f.read(s.off, s.size, maxNotes)
	if err != nil {
		return nil, fmt.Errorf("reading SDT notes: %w", err)
	}
	var base uint64
	for i := range f.sections {
		if f.sections[i].name == ".stapsdt.base" {
			base = f.sections[i].addr
		}
	}
	var notes []SDTNote
	eachNote(b, 4, func(n note) bool {
		if n.owner == "stapsdt" && n.typ == ntStapSDT {
			if p, ok := parseSDT(n.desc, base); ok {
				notes = append(notes, p)
			}
		}
		return true
	})
	return notes, nil
}

// parseSDT parses a note's descriptor: pc, base and semaphore, then three
// strings. base is where .stapsdt.base is now, 0 if unknown.
func parseSDT(b []byte, base uint64) (SDTNote, bool) {
	if len(b) < 24 {
		return SDTNote{}, false
	}
	n := SDTNote{PC: le.Uint64(b), Base: le.Uint64(b[8:]), Semaphore: le.Uint64(b[16:])}
	if base != 0 && n.Base != 0 {
		moved := base - n.Base
		n.PC += moved
		if n.Semaphore != 0 {
			n.Semaphore += moved
		}
	}
	var ok bool
	b = b[24:]
	for _, s := range []*string{&n.Provider, &n.Name, &n.Args} {
		if *s, b, ok = cutString(b); !ok {
			return SDTNote{}, false
		}
	}
	return n, n.Provider != "" && n.Name != ""
}

// cutString splits a NUL-terminated string from what follows.
func cutString(b []byte) (string, []byte, bool) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return "", nil, false
	}
	return string(b[:i]), b[i+1:], true
}
