// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
)

// TestSteps checks the order in which functions are attached to: each entry once,
// a return before its entry, whatever takes memory back before what hands it out.
func TestSteps(t *testing.T) {
	for _, mode := range modes {
		a := &Attacher{mode: mode}
		for _, fn := range alloc.HostFunctions() {
			var entry []step
			for s := range stepCount {
				if s != stepReturn && a.in(s, &fn) {
					entry = append(entry, s)
				}
			}
			want := map[alloc.Role]step{
				alloc.RoleFree:  stepFree,
				alloc.RoleAlloc: stepAlloc, alloc.RoleMap: stepAlloc,
				alloc.RoleRealloc: stepResize, alloc.RoleRemap: stepResize, alloc.RoleUnmap: stepResize,
			}[fn.Role]
			if len(entry) != 1 || entry[0] != want {
				t.Errorf("mode %v attaches to %s in steps %v, want %v", mode, fn.Name, entry, want)
			}
			if got, want := a.in(stepReturn, &fn), fn.ReturnProbed() && mode != ModeSession; got != want {
				t.Errorf("mode %v probes the return of %s: %t, want %t", mode, fn.Name, got, want)
			}
		}
	}
}

// TestAttachRunning attaches to threads that allocate and free all the time.
// Once they have freed everything, nothing that was seen may be outstanding.
func TestAttachRunning(t *testing.T) {
	forModes(t, "", modes, func(t *testing.T, mode Mode) {
		tg := startCalls(t, "")
		c := newCounting(t, mode)
		probes, _ := tg.plan(t, tg.planner(t))
		tg.Send("threads 3000 4")
		tg.WaitLine("running") // what a thread starts with is freed with its stack, if ever
		tg.attached(t, c, mode, probes)
		tg.WaitLine("done")

		if all := c.total((*alloc.Function).ReturnProbed); all.Hits == 0 {
			t.Error("no hit: the threads were done before")
		}
		var address, unused uint64
		outstanding := 0
		const page = 4096 // what is aligned to it may come from mmap, whose end is no free
		for it := c.live.Iterate(); it.Next(&address, &unused); {
			if address%page != 0 {
				outstanding++
			}
		}
		if outstanding > 0 {
			t.Errorf("%d blocks are outstanding, with %+v", outstanding, c.total(isFree))
		}
	})
}

func TestNewAttacherErrors(t *testing.T) {
	if _, err := NewAttacher(0, Programs{}, ModeAuto); !errors.Is(err, proc.ErrNoProcess) {
		t.Errorf("no process: %v", err)
	}
	for _, mode := range []Mode{ModeAuto, ModeSession, ModeMulti, ModePerf} {
		if _, err := NewAttacher(1, Programs{}, mode); !errors.Is(err, ebpf.ErrNotSupported) {
			t.Errorf("mode %v without programs: %v, want ErrNotSupported", mode, err)
		}
	}
}

// TestAuto takes the best mode of which the programs are there.
func TestAuto(t *testing.T) {
	requireMode(t, ModeSession)
	best, err := Supported()
	if err != nil || best != ModeSession {
		t.Errorf("supported mode is %v, %v", best, err)
	}
	c := newCounting(t, ModeAuto)
	p := c.Programs
	for _, want := range modes {
		a, err := NewAttacher(1, p, ModeAuto)
		if err != nil || a.Mode() != want {
			t.Fatalf("mode is %v, %v; want %v", a.Mode(), err, want)
		}
		switch want {
		case ModeSession:
			p.Session = nil
		case ModeMulti:
			p.Entry = nil
		}
	}
}
