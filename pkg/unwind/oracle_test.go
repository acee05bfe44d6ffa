// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"testing"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// oracle answers, from the extractor's blocks and without any of pack's means,
// what pack's comment says of an address: it asks every block.
type oracle struct {
	blocks  []*sdtypes.BasicBlock
	signals map[uint64]bool // where a signal trampoline starts
}

// newOracle cuts the blocks to the text first, as that is a property of the
// blocks and not of the question.
func newOracle(d *sdtypes.IntervalData, text []span) *oracle {
	o := &oracle{signals: map[uint64]bool{}}
	for _, b := range d.Blocks {
		for _, s := range text {
			if b.Start >= s.start && b.Start < s.end && b.End > b.Start && len(b.Deltas) > 0 {
				c := *b
				c.End = min(c.End, s.end)
				o.blocks = append(o.blocks, &c)
				for _, d := range c.Deltas {
					if d.Info == sdtypes.UnwindInfoSignal {
						o.signals[c.Start+uint64(d.Offset)] = true
					}
				}
			}
		}
	}
	return o
}

// better says whether block a is to be believed rather than b, at an address
// that both start at or before.
func better(a, b *sdtypes.BasicBlock) bool {
	switch {
	case a.Start != b.Start:
		return a.Start > b.Start
	case a.End != b.End:
		return a.End > b.End
	}
	return len(a.Deltas) > len(b.Deltas)
}

// at returns the rule for an address. ok is false for the one that it does not
// know, where a signal trampoline's early start meets something else.
func (o *oracle) at(addr uint64) (info Info, ok bool) {
	var best, next *sdtypes.BasicBlock
	for _, b := range o.blocks {
		if b.Start <= addr && (best == nil || better(b, best)) {
			best = b
		}
		if b.Start > addr && (next == nil || b.Start < next.Start) {
			next = b
		}
	}
	return o.judge(best, next, addr)
}

func (o *oracle) judge(best, next *sdtypes.BasicBlock, addr uint64) (info Info, ok bool) {
	if o.signals[addr+1] {
		return Info{}, false
	}
	if best == nil {
		return invalid, true
	}
	if !ordered(best) {
		if addr < best.End || next != nil && next.Start <= best.End+sdtypes.MinimumGap {
			return invalid, true
		}
	}
	if addr >= best.End && (next == nil || next.Start > best.End+sdtypes.MinimumGap) {
		return invalid, true
	}
	last := best.Deltas[0]
	if addr < best.Start+uint64(last.Offset) {
		return Info{}, false // nothing says what holds before a block's first row
	}
	for _, d := range best.Deltas {
		if best.Start+uint64(d.Offset) <= addr && best.Start+uint64(d.Offset) < best.End {
			last = d
		}
	}
	return infoOf(last.Info), true
}

func ordered(b *sdtypes.BasicBlock) bool {
	for i := 1; i < len(b.Deltas); i++ {
		if b.Deltas[i].Offset < b.Deltas[i-1].Offset {
			return false
		}
	}
	return true
}

// lookup is what an interpreter sees at an address.
func lookup(t *Table, addr uint64) Info {
	info, delta, ok := t.Lookup(addr)
	if !ok {
		return invalid
	}
	return info.At(delta)
}

// compare checks a table against blocks that do not overlap, as those of real
// files do not, at and around every address at which anything changes.
func compare(t *testing.T, table *Table, d *sdtypes.IntervalData, text []span) {
	t.Helper()
	if err := table.validate(); err != nil {
		t.Fatal(err)
	}
	o := newOracle(d, text)
	checked, wrong := 0, 0
	for i, b := range o.blocks {
		var prev, next *sdtypes.BasicBlock
		if i > 0 {
			prev = o.blocks[i-1]
			if b.Start < prev.End {
				t.Logf("block at %#x overlaps the one before", b.Start)
				continue
			}
		}
		if i+1 < len(o.blocks) {
			next = o.blocks[i+1]
			if next.Start < b.End {
				continue
			}
		}
		check := func(addr uint64) {
			best, after := b, next
			switch {
			case addr < b.Start:
				best, after = prev, b
			case next != nil && addr >= next.Start:
				return
			}
			want, ok := o.judge(best, after, addr)
			if !ok {
				return
			}
			checked++
			if got := lookup(table, addr); got != want {
				if wrong++; wrong < 10 {
					t.Errorf("at %#x: got %+v, want %+v", addr, got, want)
				}
			}
		}
		for _, d := range b.Deltas {
			for addr := b.Start + uint64(d.Offset) - 1; addr != b.Start+uint64(d.Offset)+4; addr++ {
				check(addr)
			}
		}
		for _, addr := range []uint64{b.End - 1, b.End, b.End + 1, b.End + 14, b.End + 15, b.End + 16, b.End + 4096} {
			check(addr)
		}
	}
	if checked < len(o.blocks) {
		t.Errorf("only %d addresses of %d blocks could be checked", checked, len(o.blocks))
	}
	t.Logf("%d addresses, %d blocks, %d deltas, %d rows, %d infos, %d pages",
		checked, len(o.blocks), d.NumDeltas, len(table.Rows), len(table.Infos), len(table.Pages)-1)
}
