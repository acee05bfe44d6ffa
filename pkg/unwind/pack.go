// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"fmt"
	"slices"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// pack makes a table of the extractor's blocks, of which each is a function
// with its rows. It takes them apart as it goes, so that the memory of a large
// file's blocks can be reused while its rows are made.
//
// What a table says of an address in text:
//   - the rule of the block that holds it: the one that starts last, of those
//     that start together the longest, then the one with most rows, then the
//     first. Blocks of a sound file do not overlap, but .eh_frame and
//     .debug_frame may both describe a function.
//   - in a gap of up to sdtypes.MinimumGap bytes after a block, the block's
//     last rule, which saves a row for most functions: nothing executes there.
//   - else nothing is known.
//
// One exception: a signal trampoline's row starts a byte early, since it is
// never called: its address is on the stack without a call before it, and the
// unwinder looks up the byte before a return address.
func pack(d *sdtypes.IntervalData, text []span) (*Table, error) {
	for _, b := range d.Blocks {
		b.End = min(b.End, textEnd(text, b.Start))
	}
	order := func(a, b *sdtypes.BasicBlock) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), -cmp.Compare(a.End, b.End),
			-cmp.Compare(len(a.Deltas), len(b.Deltas)))
	}
	slices.SortStableFunc(d.Blocks, order)
	b := newBuilder(int(d.NumDeltas))
	var held *sdtypes.BasicBlock // a block whose end is not known yet
	for i, next := range d.Blocks {
		d.Blocks[i] = nil
		if next.End <= next.Start || len(next.Deltas) == 0 || held != nil && next.Start == held.Start {
			continue
		}
		if held != nil {
			b.block(held, next.Start)
		}
		held = next
	}
	if held != nil {
		b.block(held, 1<<63)
	}
	return b.finish()
}

// textEnd returns the end of the span that holds addr, or 0.
func textEnd(text []span, addr uint64) uint64 {
	i, found := slices.BinarySearchFunc(text, addr, func(s span, addr uint64) int { return cmp.Compare(s.start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= text[i].end {
		return 0
	}
	return text[i].end
}

// rule is a raw row: from addr on, info holds.
type rule struct {
	addr uint64
	info Info
}

// builder makes the rows of a table from rules in rising order. Rules pass
// through two stages that each hold one back: of rules at the same address the
// last counts, and a rule that only repeats the one before is dropped; then a
// rule that differs from the next, one or two bytes on, by a push or pop only
// takes it in (Info.MergeOpcode). The first drops 5 %, the second 33 % of the
// rows of libtorch_cpu.
type builder struct {
	t     Table
	index map[Info]uint32
	err   error

	raw   rule // first stage: the latest rule
	last  Info // the rule before it
	merge rule // second stage
	held  bool // whether there is something in merge
}

func newBuilder(rules int) *builder {
	b := &builder{index: map[Info]uint32{invalid: 0}, last: invalid}
	b.t.Infos = []Info{invalid}
	b.t.Rows = append(make([]uint32, 0, min(rules, maxRows)*3/4+2), 0)
	b.raw.info = invalid
	return b
}

// block adds a block's rules up to limit, where the next block starts.
func (b *builder) block(x *sdtypes.BasicBlock, limit uint64) {
	end := min(x.End, limit)
	if rising(x.Deltas) {
		for _, d := range x.Deltas {
			addr := x.Start + uint64(d.Offset)
			if addr >= end {
				break
			}
			if d.Info == sdtypes.UnwindInfoSignal && addr > 0 {
				addr--
			}
			b.add(rule{addr, infoOf(d.Info)})
		}
	} else {
		b.add(rule{x.Start, invalid})
	}
	if limit > end+sdtypes.MinimumGap {
		b.add(rule{end, invalid})
	}
}

// rising says whether a block's rows are in order. If not, which a hostile
// file can bring about, none of them can be believed.
func rising(deltas sdtypes.StackDeltaArray) bool {
	return slices.IsSortedFunc(deltas, func(a, b sdtypes.StackDelta) int { return cmp.Compare(a.Offset, b.Offset) })
}

// add is the first stage. Only a trampoline's early start can go back, and then
// not behind the latest rule.
func (b *builder) add(r rule) {
	r.addr = max(r.addr, b.raw.addr)
	if r.addr != b.raw.addr {
		b.pass()
	}
	b.raw = r
}

// pass hands the latest rule on, unless it repeats the one before.
func (b *builder) pass() {
	if b.raw.info == b.last {
		return
	}
	b.last = b.raw.info
	b.second(b.raw)
}

// second is the second stage.
func (b *builder) second(r rule) {
	if !b.held {
		b.merge, b.held = r, true
		return
	}
	if op := mergeOpcode(b.merge, r); op != 0 {
		b.merge.info.MergeOpcode = op
		b.row(b.merge)
		b.held = false
		return
	}
	b.row(b.merge)
	b.merge = r
}

// mergeOpcode returns the opcode that makes r part of m, or 0. All bytes of m
// must lie in one page, as a table does not say how far into a row of an
// earlier page an address is.
func mergeOpcode(m, r rule) uint8 {
	n := r.addr - m.addr
	if m.info.Flags&FlagCommand != 0 || n > 2 || m.addr>>pageBits != (r.addr-1)>>pageBits {
		return 0
	}
	up, down := m.info, m.info
	up.Param += 8
	down.Param -= 8
	switch r.info {
	case up:
		return uint8(n)
	case down:
		return uint8(n) | MergeNegative
	}
	return 0
}

// row appends a row.
func (b *builder) row(r rule) {
	if r.addr>>pageBits >= maxPages || len(b.t.Rows) >= maxRows {
		b.err = fmt.Errorf("%w: row %d at %#x", ErrTooLarge, len(b.t.Rows), r.addr)
		return
	}
	i, ok := b.index[r.info]
	if !ok {
		if len(b.t.Infos) >= maxInfos {
			b.err = fmt.Errorf("%w: more than %d different rules", ErrTooLarge, maxInfos)
			return
		}
		i = uint32(len(b.t.Infos))
		b.index[r.info] = i
		b.t.Infos = append(b.t.Infos, r.info)
	}
	for page := int(r.addr >> pageBits); len(b.t.Pages) <= page; {
		b.t.Pages = append(b.t.Pages, uint32(len(b.t.Rows)))
	}
	b.t.Rows = append(b.t.Rows, uint32(r.addr&(pageSize-1))<<infoBits|i)
}

// finish returns the table.
func (b *builder) finish() (*Table, error) {
	b.pass()
	if b.held {
		b.row(b.merge)
	}
	if b.err != nil {
		return nil, b.err
	}
	if len(b.t.Rows) == 1 {
		return nil, ErrNoRows
	}
	b.t.Pages = append(b.t.Pages, uint32(len(b.t.Rows)))
	b.t.Pages, b.t.Rows, b.t.Infos = slices.Clip(b.t.Pages), slices.Clip(b.t.Rows), slices.Clip(b.t.Infos)
	return &b.t, nil
}
