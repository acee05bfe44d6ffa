// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/unfreed/unfreed/internal/uprobelink"
	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// maxRows is how many rows the counting programs know.
const maxRows = 512

// counting is a set of programs, assembled here, that count hits by cookie.
type counting struct {
	tb       testing.TB
	Programs Programs
	rows     *ebpf.Map // row -> rowConfig
	counts   *ebpf.Map // row -> counts
	sizes    *ebpf.Map // sizeKey -> hits; only keys that exist are counted
	live     *ebpf.Map // addresses returned and not freed

	functions map[int]*alloc.Function // by row, of the probes that were learned
	throw     uint64                  // rowConfig.Throw of functions that throw
}

type rowConfig struct {
	Size, Ptr int64  // arguments
	Throw     uint64 // sizes above it fail: their return is not to be probed; 0 for none
}

// counts of a row. Known and Unknown are frees of addresses that a probed
// return gave out, and of others.
type counts struct{ Hits, Returns, Known, Unknown, Null uint64 }

type sizeKey struct{ Row, Size uint64 }

// Offsets in struct pt_regs of x86-64 (arch/x86/include/asm/ptrace.h).
const ptRegsAX = 80

var ptRegsArgs = [6]int16{112, 104, 96, 88, 72, 64}

// newCounting loads the programs of a mode, or of all with ModeAuto.
func newCounting(tb testing.TB, mode Mode) *counting {
	tb.Helper()
	testutil.RequireBPF(tb)
	if runtime.GOARCH != "amd64" {
		testutil.Skipf(tb, "amd64 is missing, for whose registers the counting programs are written")
	}
	c := &counting{tb: tb, functions: map[int]*alloc.Function{}}
	newMap := func(t ebpf.MapType, key, value, n uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: t, KeySize: key, ValueSize: value, MaxEntries: n})
		if err != nil {
			tb.Fatalf("making a map: %v", err)
		}
		tb.Cleanup(func() { m.Close() })
		return m
	}
	c.rows = newMap(ebpf.Array, 4, 24, maxRows)
	c.counts = newMap(ebpf.Array, 4, 40, maxRows)
	c.sizes = newMap(ebpf.Hash, 16, 8, 64*maxRows)
	c.live = newMap(ebpf.Hash, 8, 8, 1<<18)
	c.load(mode)
	return c
}

// learn tells the programs of the functions that are to be attached.
func (c *counting) learn(probes []Probe) {
	c.tb.Helper()
	for _, p := range probes {
		r := rowConfig{Size: int64(p.Function.Size), Ptr: int64(p.Function.Ptr)}
		if p.Function.Throws {
			r.Throw = c.throw
		}
		if err := c.rows.Put(uint32(p.Row), r); err != nil {
			c.tb.Fatal(err)
		}
		c.functions[p.Row] = p.Function
	}
}

func (c *counting) load(mode Mode) {
	c.tb.Helper()
	p := &c.Programs
	for _, l := range []struct {
		to    **ebpf.Program
		modes []Mode
		at    ebpf.AttachType
		insns asm.Instructions
	}{
		{&p.Session, []Mode{ModeSession}, uprobelink.AttachSession, c.session()},
		{&p.Entry, []Mode{ModeMulti}, ebpf.AttachTraceUprobeMulti, c.entry()},
		{&p.Return, []Mode{ModeMulti}, ebpf.AttachTraceUprobeMulti, c.ret()},
		{&p.Free, []Mode{ModeSession, ModeMulti}, ebpf.AttachTraceUprobeMulti, c.free()},
		{&p.PerfEntry, []Mode{ModePerf}, 0, c.entry()},
		{&p.PerfReturn, []Mode{ModePerf}, 0, c.ret()},
		{&p.PerfFree, []Mode{ModePerf}, 0, c.free()},
	} {
		wanted := mode == ModeAuto
		for _, m := range l.modes {
			wanted = wanted || m == mode
		}
		if !wanted {
			continue
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "counting", Type: ebpf.Kprobe, AttachType: l.at, Instructions: l.insns, License: "Dual BSD/GPL",
		})
		if err != nil {
			c.tb.Fatalf("loading a program of attach type %d: %+v", l.at, err)
		}
		c.tb.Cleanup(func() { prog.Close() })
		*l.to = prog
	}
}

// total returns the sum of the rows' counts for which pick is true.
func (c *counting) total(pick func(*alloc.Function) bool) counts {
	c.tb.Helper()
	var sum counts
	for row, fn := range c.functions {
		if !pick(fn) {
			continue
		}
		var n counts
		if err := c.counts.Lookup(uint32(row), &n); err != nil {
			c.tb.Fatal(err)
		}
		sum.Hits += n.Hits
		sum.Returns += n.Returns
		sum.Known += n.Known
		sum.Unknown += n.Unknown
		sum.Null += n.Null
	}
	return sum
}

// watchSize starts to count the hits in which the size argument of any row is
// this.
func (c *counting) watchSize(size uint64) {
	c.tb.Helper()
	for row := range maxRows {
		if err := c.sizes.Put(sizeKey{uint64(row), size}, uint64(0)); err != nil {
			c.tb.Fatal(err)
		}
	}
}

// hits returns the hits with a size, by function. Functions without are left out.
func (c *counting) hits(size uint64) map[string]uint64 {
	c.tb.Helper()
	found := map[string]uint64{}
	for row, fn := range c.functions {
		var n uint64
		if err := c.sizes.Lookup(sizeKey{uint64(row), size}, &n); err != nil {
			c.tb.Fatal(err)
		}
		if n > 0 {
			found[fn.Name] += n
		}
	}
	return found
}
