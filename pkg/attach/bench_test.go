// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/unfreed/unfreed/internal/uprobelink"
	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// emptyPrograms loads programs that do nothing: what is left is the trap.
func emptyPrograms(tb testing.TB) Programs {
	tb.Helper()
	load := func(at ebpf.AttachType) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "empty", Type: ebpf.Kprobe, AttachType: at, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { p.Close() })
		return p
	}
	multi, perf := load(ebpf.AttachTraceUprobeMulti), load(ebpf.AttachNone)
	return Programs{
		Session: load(uprobelink.AttachSession), Free: multi, Entry: multi, Return: multi,
		PerfEntry: perf, PerfReturn: perf, PerfFree: perf,
	}
}

// BenchmarkPair measures a malloc and its free in a target: without probes, with
// the probes where Place puts them, and with them at the start of each function.
// The time of an operation is the target's, a pair.
func BenchmarkPair(b *testing.B) {
	testutil.RequireBPF(b)
	for _, lib := range []string{"", "libjemalloc.so.2", "libtcmalloc.so.4", "libmimalloc.so.2"} {
		b.Run("glibc "+lib, func(b *testing.B) {
			b.Run("none", func(b *testing.B) { benchPair(b, lib, ModeAuto, nil) })
			for _, mode := range modes {
				b.Run("placed/"+mode.String(), func(b *testing.B) {
					benchPair(b, lib, mode, func(p []Probe) []Probe { return p })
				})
				b.Run("start/"+mode.String(), func(b *testing.B) { benchPair(b, lib, mode, atStart) })
			}
		})
	}
}

// atStart moves probes to where they would stand without Place.
func atStart(probes []Probe) []Probe {
	for i := range probes {
		p := &probes[i]
		p.Offset -= p.Placement.Offset
	}
	return probes
}

func benchPair(b *testing.B, lib string, mode Mode, place func([]Probe) []Probe) {
	tg := startCalls(b, lib)
	if place != nil {
		requireMode(b, mode)
		probes, _ := tg.plan(b, tg.planner(b))
		a, err := NewAttacher(tg.PID(), emptyPrograms(b), mode)
		if err != nil {
			b.Fatal(err)
		}
		defer a.Close()
		if _, err := a.Add(place(probes)); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	tg.Send(fmt.Sprintf("bench %d", b.N))
	var ns float64
	if _, err := fmt.Sscanf(tg.WaitLine("ns "), "ns %g", &ns); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(ns, "ns/op")
}

// BenchmarkPlan plans the probes of a CPython with some libraries, files opened
// and closed.
func BenchmarkPlan(b *testing.B) {
	tg := testutil.Start(b, testutil.RequireTool(b, "python3"), "-c", "import ssl, json, decimal, sqlite3; print('ready', flush=True); input()")
	w := watch(b, tg)
	maps, err := w.proc.Maps()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p := NewPlanner(w.proc.OpenMapping, alloc.HostFunctions())
		if _, _, err := p.Plan(maps); err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
	b.ReportMetric(float64(executable(maps)), "files")
}

func executable(maps []proc.Mapping) (n int) {
	seen := map[fileID]bool{}
	for _, m := range maps {
		if m.Exec && m.FileBacked() && !seen[fileID{m.Dev, m.Inode}] {
			seen[fileID{m.Dev, m.Inode}] = true
			n++
		}
	}
	return n
}
