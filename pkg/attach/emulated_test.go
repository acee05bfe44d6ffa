// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
)

// entriesOnly puts the counting program on the entry of functions, at the offset
// in the file that is returned for each, and nothing on returns.
func (t *target) entriesOnly(tb testing.TB, c *counting, probes []Probe, offset func(*Probe) (uint64, bool)) {
	tb.Helper()
	c.learn(probes)
	at := map[*File]*link.UprobeMultiOptions{}
	for i := range probes {
		p := &probes[i]
		off, ok := offset(p)
		if !ok {
			continue
		}
		if at[p.File] == nil {
			at[p.File] = &link.UprobeMultiOptions{PID: uint32(t.PID())}
		}
		at[p.File].Addresses = append(at[p.File].Addresses, off)
		at[p.File].Cookies = append(at[p.File].Cookies, p.Cookie)
	}
	for f, opts := range at {
		l, err := multi(fmt.Sprintf("/proc/self/fd/%d", f.file.Fd()), c.Programs.Entry, false, opts)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { l.Close() })
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
	requireMode(t, ModeMulti)
	for lib := range allocators() {
		t.Run("glibc "+lib, func(t *testing.T) {
			tg := startCalls(t, lib)
			c := newCounting(t, ModeMulti)
			probes, _ := tg.plan(t, tg.planner(t))
			tg.entriesOnly(t, c, probes, func(p *Probe) (uint64, bool) { return p.Offset, p.Placement.Emulated })
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
	requireMode(t, ModeMulti)
	tg := startCalls(t, "")
	c := newCounting(t, ModeMulti)
	probes, _ := tg.plan(t, tg.planner(t))
	tg.entriesOnly(t, c, probes, func(p *Probe) (uint64, bool) {
		return p.Offset - p.Placement.Offset, p.Function.Name == "munmap"
	})
	tg.order("run 10")
	if !tg.stepped(t) {
		t.Error("no instruction was single-stepped")
	}
}
