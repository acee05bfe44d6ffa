// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/python"
)

// place is a native address with the mapping that held it when it was seen.
type place struct {
	addr    uint64 // one less than the return address: in the call instruction
	mapping *alloc.Mapping
}

// recorded is a stack as it came, with its addresses bound to files.
type recorded struct {
	function int
	native   []place
	python   []bpfobj.PythonFrame
	status   int
}

// stacks holds every stack and code object that was seen. For one goroutine.
type stacks struct {
	byID  map[alloc.StackID]*recorded
	codes map[uint64]*python.Code // nil: could not be decoded
	raw   map[alloc.StackID]*bpfobj.Raw
}

func newStacks() *stacks {
	return &stacks{byID: map[alloc.StackID]*recorded{}, codes: map[uint64]*python.Code{}, raw: map[alloc.StackID]*bpfobj.Raw{}}
}

// add keeps a stack, binding its addresses to the mappings it was unwound with:
// later they may be another library's.
func (st *stacks) add(r *bpfobj.Stack, v, latest *view) {
	s := &recorded{function: r.Function, python: r.Python, status: r.NativeStatus, native: make([]place, len(r.Native))}
	for i, pc := range r.Native {
		p := place{addr: pc - 1}
		if g, ok := v.find(p.addr); ok {
			p.mapping = g.mapping
		} else if g, ok := latest.find(p.addr); ok {
			p.mapping = g.mapping
		}
		s.native[i] = p
	}
	st.byID[r.Site] = s
}
