// SPDX-License-Identifier: Apache-2.0

package python

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/unfreed/unfreed/pkg/proc"
)

// validateTries is how often a running target is read before an inconsistency
// counts as real. A read takes microseconds; the list of threads changes when one
// starts or ends, the innermost frames at any time, but what a frame that is gone
// leaves behind mostly still passes.
const validateTries = 64

// validate compares the layout with what the target's memory holds, so that a
// patched or unusual build is refused instead of misread.
func (img *image) validate(mem Target, r *Runtime, maps []proc.Mapping) error {
	for _, check := range []struct {
		symbol  string
		members []member
	}{
		{symCodeType, codeMembers(r)},
		{symFrameType, frameMembers(r)},
	} {
		s, ok := img.symbols[check.symbol]
		if !ok || len(check.members) == 0 {
			continue
		}
		if err := checkMembers(mem, img.bias+s.Value, check.members); err != nil {
			return r.layoutError(fmt.Errorf("%s: %w", check.symbol, err))
		}
	}
	var err error
	for range validateTries {
		var threads []Thread
		threads, err = r.Threads(mem)
		if err == nil {
			err = checkThreads(mem, threads, maps, img.Machine())
		}
		if err == nil {
			err = r.checkFrames(mem, threads)
		}
		if err == nil || errors.Is(err, ErrNotStarted) {
			return err
		}
	}
	return r.layoutError(err)
}

// checkThreads accepts the threads if one of them has the id of a living
// thread. Those of threads that ended without telling the interpreter may stay
// in the list.
func checkThreads(mem Target, threads []Thread, maps []proc.Mapping, machine elf.Machine) error {
	if len(threads) == 0 {
		return ErrNotStarted
	}
	unbound := 0
	for _, t := range threads {
		if t.ID == 0 { // since 3.12 a new state is not yet bound to its thread
			unbound++
			continue
		}
		if isThreadPointer(mem, t.ID, maps, machine) {
			return nil
		}
	}
	if unbound == len(threads) {
		return ErrNotStarted
	}
	return fmt.Errorf("none of %d thread states has the id of a thread (the first says %#x)", len(threads), threads[0].ID)
}

// isThreadPointer reports whether id can be what pthread_self() returns. On
// x86-64 the thread pointer points to itself (the ABI's thread-local storage
// model requires it); elsewhere it must be in writable memory.
func isThreadPointer(mem Target, id uint64, maps []proc.Mapping, machine elf.Machine) bool {
	if machine == elf.EM_X86_64 {
		self, err := readWord(mem, id, 0)
		return err == nil && self == id
	}
	i, found := slices.BinarySearchFunc(maps, id, func(m proc.Mapping, a uint64) int {
		switch {
		case m.End <= a:
			return -1
		case m.Start > a:
			return 1
		}
		return 0
	})
	return found && maps[i].Write
}

// checkedFrames is how many frames of a thread are looked at.
const checkedFrames = 8

// checkFrames accepts the layout of frames if those of one thread are chained to
// each other and have code objects, or if there are none to look at.
func (r *Runtime) checkFrames(mem Target, threads []Thread) error {
	var err error
	for _, t := range threads {
		var n int
		if n, err = r.checkChain(mem, t); err == nil && n > 0 {
			return nil
		}
	}
	return err
}

// checkChain returns how many frames of a thread it found to be good.
func (r *Runtime) checkChain(mem Target, t Thread) (int, error) {
	l := &r.Layout
	at, err := r.topFrame(mem, t)
	if err != nil {
		return 0, err
	}
	b := make([]byte, l.FrameSize)
	for n := range checkedFrames {
		if at == 0 {
			return n, nil
		}
		if err := readFull(mem, b, at); err != nil {
			return 0, fmt.Errorf("reading frame %d of thread %#x: %w", n, t.ID, err)
		}
		if f := l.parseFrame(b); !f.Entry || !l.EntryIsShim {
			if err := checkCodeType(mem, f.Address); err != nil {
				return 0, fmt.Errorf("frame %d of thread %#x: %w", n, t.ID, err)
			}
		}
		at = binary.LittleEndian.Uint64(b[l.FramePrev:])
	}
	return checkedFrames, nil
}

// Offsets of ob_type in PyObject and of tp_name in PyTypeObject.
const (
	objectType = 8
	typeName   = 24
)

// checkCodeType checks that the object at an address says that it is a code
// object.
func checkCodeType(mem Target, addr uint64) error {
	typ, err := readWord(mem, addr, objectType)
	if err != nil {
		return err
	}
	nameAt, err := readWord(mem, typ, typeName)
	if err != nil {
		return err
	}
	var name [5]byte
	if err := readFull(mem, name[:], nameAt); err != nil {
		return err
	}
	if string(name[:]) != "code\x00" {
		return fmt.Errorf("the object at %#x is a %q, not a code object", addr, name)
	}
	return nil
}

// member is a PyMemberDef that a type must have: a Python attribute which is a
// field of the structure.
type member struct {
	name     string
	offset   uint32
	optional bool // not there in every version
}

func codeMembers(r *Runtime) []member {
	l := &r.Layout
	name, lines := "co_name", "co_linetable"
	if r.Version.Minor >= 11 {
		name = "co_qualname"
	}
	if r.Version.Minor == 9 {
		lines = "co_lnotab"
	}
	return []member{
		{name: "co_filename", offset: l.CodeFilename},
		{name: name, offset: l.CodeQualname},
		{name: "co_firstlineno", offset: l.CodeFirstLine},
		{name: lines, offset: l.CodeLineTable, optional: true},
	}
}

func frameMembers(r *Runtime) []member {
	if r.Version.Minor > 10 {
		return nil
	}
	return []member{
		{name: "f_back", offset: r.Layout.FramePrev},
		{name: "f_code", offset: r.Layout.FrameCode, optional: true}, // computed since 3.10
	}
}

// Offsets of tp_members in PyTypeObject and of the fields of PyMemberDef
// (Include/cpython/object.h, Include/structmember.h), the same in 3.9 to 3.14.
const (
	typeMembers     = 240
	memberOffset    = 16
	memberSize      = 40
	maxMembers      = 64 // PyCode_Type has 19
	maxMemberLength = 24 // longer than any name looked for
)

// checkMembers compares offsets with those that a type object states for its
// attributes.
func checkMembers(mem Target, typ uint64, want []member) error {
	at, err := readWord(mem, typ, typeMembers)
	if err != nil {
		return err
	}
	got := make(map[string]uint64)
	for range maxMembers {
		var def [memberSize]byte
		if err := readFull(mem, def[:], at); err != nil {
			return err
		}
		nameAt := binary.LittleEndian.Uint64(def[:])
		if nameAt == 0 {
			break
		}
		var name [maxMemberLength]byte
		if n, err := mem.ReadAt(name[:], int64(nameAt)); n == 0 {
			return fmt.Errorf("reading the name of a member at %#x: %w", nameAt, err)
		}
		got[string(cstring(name[:]))] = binary.LittleEndian.Uint64(def[memberOffset:])
		at += memberSize
	}
	for _, w := range want {
		off, ok := got[w.name]
		switch {
		case !ok && !w.optional:
			return fmt.Errorf("there is no member %s among %d", w.name, len(got))
		case ok && off != uint64(w.offset):
			return fmt.Errorf("%s is at offset %d, not at %d", w.name, off, w.offset)
		}
	}
	return nil
}
