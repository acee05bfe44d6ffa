// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"path"
	"slices"
)

// View says which frames of a stack are shown. The zero value is the default:
// Python and native frames, without the interpreter's own where Python frames
// stand in for them.
type View struct {
	// KeepInterpreter shows CPython's own C frames too.
	KeepInterpreter bool
	// DropNative leaves Python frames only.
	DropNative bool
	// DropPython leaves native frames only, the interpreter's included.
	DropPython bool
}

// Frames returns the frames of a stack that are shown, leaf first. Interpreter
// frames fold away only where Python frames are shown for them: in a stack
// without any, say of the interpreter's start-up, they are all the explanation
// there is. The result is empty where nothing is left. It may share memory
// with the stack.
func (v View) Frames(stack []Frame) []Frame {
	python := !v.DropPython && slices.ContainsFunc(stack, func(f Frame) bool { return f.Language == Python })
	fold := python && !v.KeepInterpreter
	if !fold && !v.DropNative && !v.DropPython {
		return stack
	}
	var shown []Frame
	for _, f := range stack {
		switch {
		case f.Language == Python && v.DropPython,
			f.Language != Python && v.DropNative,
			f.Interpreter && fold:
			continue
		}
		shown = append(shown, f)
	}
	return shown
}

// Sites returns the sites as the view shows them: their stacks folded, and
// those that look the same afterwards made one, which keeps every byte. A
// merged site has the least ID of its parts. The result is sorted by
// outstanding bytes, allocated bytes, outstanding and allocated objects, all
// descending, then by stack, function and kind: it does not depend on the
// order of the input, which is left alone.
func (v View) Sites(sites []Site) []Site {
	n := newNames()
	at := make(map[string]int, len(sites))
	merged := make([]Site, 0, len(sites))
	for _, s := range sites {
		s.Stack = v.Frames(s.Stack)
		key := n.key(&s)
		i, ok := at[key]
		if !ok {
			at[key] = len(merged)
			merged = append(merged, s)
			continue
		}
		merged[i].merge(&s)
	}
	slices.SortFunc(merged, func(a, b Site) int { return compareSites(&a, &b) })
	return merged
}

// merge adds what another site of the same stack has.
func (s *Site) merge(o *Site) {
	s.ID = min(s.ID, o.ID)
	if o.InUseObjects > 0 && (s.InUseObjects == 0 || o.NewestAge < s.NewestAge) {
		s.NewestAge = o.NewestAge
	}
	s.OldestAge = max(s.OldestAge, o.OldestAge)
	s.InUseBytes = addSaturated(s.InUseBytes, o.InUseBytes)
	s.InUseObjects = addSaturated(s.InUseObjects, o.InUseObjects)
	s.AllocBytes = addSaturated(s.AllocBytes, o.AllocBytes)
	s.AllocObjects = addSaturated(s.AllocObjects, o.AllocObjects)
}

// addSaturated is a + b for amounts of memory, of which a hostile target can
// claim so much that the sum does not fit.
func addSaturated(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Label returns what to call the frame: its function, or the file with the
// offset in it, "libfoo.so+0x1234", or the bare address.
func (f *Frame) Label() string {
	switch {
	case f.Function != "":
		return f.Function
	case f.Mapping != nil && f.Mapping.File != "":
		return fmt.Sprintf("%s+%#x", path.Base(f.Mapping.File), f.Offset())
	case f.Address != 0:
		return fmt.Sprintf("%#x", f.Address)
	}
	return "[unknown]"
}

// Offset returns the file offset of the frame's address, 0 if it has none.
func (f *Frame) Offset() uint64 {
	if f.Mapping == nil {
		return 0
	}
	return f.Address - f.Mapping.Start + f.Mapping.Offset
}

// names numbers frames by content, so that stacks can be compared by number.
type names struct {
	mappings map[Mapping]*Mapping
	frames   map[Frame]uint32
}

func newNames() *names {
	return &names{mappings: make(map[Mapping]*Mapping), frames: make(map[Frame]uint32)}
}

// key identifies what a site is merged by.
func (n *names) key(s *Site) string {
	b := make([]byte, 0, 4*len(s.Stack)+len(s.Function)+2)
	b = append(append(b, s.Function...), 0, byte(s.Kind))
	for _, f := range s.Stack {
		if f.Mapping != nil {
			m, ok := n.mappings[*f.Mapping]
			if !ok {
				m = f.Mapping
				n.mappings[*m] = m
			}
			f.Mapping = m
		}
		id, ok := n.frames[f]
		if !ok {
			id = uint32(len(n.frames))
			n.frames[f] = id
		}
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return string(b)
}

func compareSites(a, b *Site) int {
	return cmp.Or(
		cmp.Compare(b.InUseBytes, a.InUseBytes),
		cmp.Compare(b.AllocBytes, a.AllocBytes),
		cmp.Compare(b.InUseObjects, a.InUseObjects),
		cmp.Compare(b.AllocObjects, a.AllocObjects),
		slices.CompareFunc(a.Stack, b.Stack, func(x, y Frame) int { return compareFrames(&x, &y) }),
		cmp.Compare(a.Function, b.Function),
		cmp.Compare(a.Kind, b.Kind),
	)
}

func compareFrames(a, b *Frame) int {
	return cmp.Or(
		cmp.Compare(a.Function, b.Function),
		cmp.Compare(a.SystemName, b.SystemName),
		cmp.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.StartLine, b.StartLine),
		cmp.Compare(a.Language, b.Language),
		cmp.Compare(a.Address, b.Address),
		compareBool(a.Inlined, b.Inlined),
		compareBool(a.Interpreter, b.Interpreter),
		compareMappings(a.Mapping, b.Mapping),
	)
}

func compareMappings(a, b *Mapping) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Or(
		cmp.Compare(a.File, b.File),
		cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.End, b.End),
		cmp.Compare(a.Offset, b.Offset),
		cmp.Compare(a.BuildID, b.BuildID),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
