// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// entryMode is a mode with links for entries alone.
func entryMode(tb testing.TB) Mode {
	tb.Helper()
	testutil.RequireBPF(tb)
	if err := supports(ModeMulti); errors.Is(err, ebpf.ErrNotSupported) {
		return ModePerf
	} else if err != nil {
		tb.Fatal(err)
	}
	return ModeMulti
}

// entriesOnly puts the counting program on the entry of functions, at the offset
// in the file that is returned for each, and nothing on returns.
func (t *target) entriesOnly(tb testing.TB, mode Mode, probes []Probe, offset func(*Probe) (uint64, bool)) {
	tb.Helper()
	c := newCounting(tb, mode)
	c.learn(probes)
	a := &Attacher{pid: t.PID(), progs: c.Programs, mode: mode}
	files := map[*File][]Probe{}
	for _, p := range probes {
		var ok bool
		if p.Offset, ok = offset(&p); ok {
			files[p.File] = append(files[p.File], p)
		}
	}
	for _, group := range files {
		links, err := a.attach(stepAlloc, group)
		for _, l := range links {
			tb.Cleanup(func() { l.Close() })
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// stepped reports whether the kernel has single-stepped in the target: it then
// has mapped a page for the copies of instructions (xol_add_vma of
// kernel/events/uprobes.c), which return probes need as well.
func (t *target) stepped(tb testing.TB) bool {
	tb.Helper()
	maps, err := t.proc.Maps()
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range maps {
		if m.Path == "[uprobes]" {
			return true
		}
	}
	return false
}

// TestEmulated checks what Place says of the kernel: no instruction that it calls
// emulated is single-stepped, in any function of any allocator.
func TestEmulated(t *testing.T) {
	mode := entryMode(t)
	for lib := range allocators() {
		t.Run("glibc "+lib, func(t *testing.T) {
			tg := startCalls(t, lib)
			probes, _ := tg.plan(t, tg.planner(t))
			tg.entriesOnly(t, mode, probes, func(p *Probe) (uint64, bool) { return p.Offset, p.Placement.Emulated })
			tg.order("run 10")
			tg.order("parked 10")
			if tg.stepped(t) {
				t.Error("an instruction was single-stepped")
			}
			var single []string
			for _, p := range probes {
				if !p.Placement.Emulated {
					single = append(single, p.String())
				}
			}
			t.Logf("not emulated:\n%s", strings.Join(single, "\n"))
		})
	}
}

// TestSingleStepped is the same for glibc's munmap, which does not start with an
// emulated instruction: the check above can see one.
func TestSingleStepped(t *testing.T) {
	mode := entryMode(t)
	tg := startCalls(t, "")
	probes, _ := tg.plan(t, tg.planner(t))
	tg.entriesOnly(t, mode, probes, func(p *Probe) (uint64, bool) {
		return p.Offset - p.Placement.Offset, p.Function.Name == "munmap"
	})
	tg.order("run 10")
	if !tg.stepped(t) {
		t.Error("no instruction was single-stepped")
	}
}
