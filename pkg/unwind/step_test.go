// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestStep(t *testing.T) {
	// A stack from 0x1000 on of which each word is its own address plus one.
	read := func(addr uint64) (uint64, bool) {
		if addr == 0x1ff0 {
			return 0, true
		}
		return addr + 1, addr >= 0x1000 && addr < 0x2000
	}
	start := Registers{PC: 0x400100, SP: 0x1100, FP: 0x1200}
	for _, c := range []struct {
		name  string
		info  Info
		delta uint32
		want  Registers
		res   Result
		leaf  bool
	}{
		{"sp", Info{BaseReg: RegSP, Param: 16}, 0, Registers{0x1109, 0x1110, 0x1200}, Caller, false},
		{"sp merged", Info{BaseReg: RegSP, Param: 16, MergeOpcode: 2}, 2, Registers{0x1111, 0x1118, 0x1200}, Caller, false},
		{"sp, fp saved", Info{BaseReg: RegSP, Param: 32, AuxBaseReg: RegCFA, AuxParam: -16}, 0,
			Registers{0x1119, 0x1120, 0x1111}, Caller, false},
		{"fp", Info{BaseReg: RegFP, Param: 16, AuxBaseReg: RegCFA, AuxParam: -16}, 0,
			Registers{0x1209, 0x1210, 0x1201}, Caller, false},
		{"fp that is lost", Info{BaseReg: RegFP, Param: 16}, 0, Registers{0x1209, 0x1210, 0}, Caller, false},
		{"fp-8 read", Info{BaseReg: RegFP, Flags: FlagDerefCFA, Param: -8}, 0, Registers{0x11f2, 0x11f9, 0}, Caller, false},
		{"fp-8 read, 16 on", Info{BaseReg: RegFP, Flags: FlagDerefCFA, Param: -8 | 2}, 0, Registers{0x1202, 0x1209, 0}, Caller, false},
		{"plt", Info{Flags: FlagCommand, Param: CommandPLT}, 0, Registers{0x1101, 0x1108, 0x1200}, Caller, false},
		{"go", Info{Flags: FlagCommand, Param: CommandFramePointer}, 0, Registers{0x1209, 0x1210, 0x1201}, Caller, false},
		{"signal", Info{Flags: FlagCommand, Param: CommandSignal}, 0,
			Registers{0x1128 + 16*8 + 1, 0x1128 + 15*8 + 1, 0x1128 + 10*8 + 1}, Caller, true},
		{"stop", Info{Flags: FlagCommand, Param: CommandStop}, 0, start, Done, false},
		{"invalid", invalid, 0, start, Invalid, false},
		{"unknown command", Info{Flags: FlagCommand, Param: 99}, 0, start, Invalid, false},
		{"register of a leaf", Info{BaseReg: RegRAX, Flags: FlagLeafOnly, Param: 16}, 0, start, Invalid, false},
		{"return address in a register", Info{BaseReg: RegSP, AuxBaseReg: RegRDI, Flags: FlagLeafOnly | FlagRegisterRA}, 0, start, Invalid, false},
		{"no stack there", Info{BaseReg: RegSP, Param: 1 << 20}, 0, start, Unread, false},
		{"return address 0", Info{BaseReg: RegSP, Param: 0x1ff8 - 0x1100}, 0, Registers{0, 0x1ff8, 0x1200}, Done, false},
	} {
		r := start
		res, leaf := Step(c.info, c.delta, &r, read)
		if res != c.res || leaf != c.leaf || r != c.want {
			t.Errorf("%s: got %d, %v, %#x; want %d, %v, %#x", c.name, res, leaf, r, c.res, c.leaf, c.want)
		}
	}
	r := Registers{PC: 0x40010b, SP: 0x1100}
	if Step(Info{Flags: FlagCommand, Param: CommandPLT}, 0, &r, read); r.SP != 0x1110 {
		t.Errorf("late in a PLT entry: sp is %#x", r.SP)
	}
}

// walker unwinds a process that stands still.
type walker struct {
	t      *testing.T
	p      *proc.Process
	maps   []proc.Mapping
	tables map[string]*Table
	files  map[string]*elfsym.File
}

func newWalker(t *testing.T, pid int) *walker {
	p, err := proc.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	return &walker{t, p, maps, map[string]*Table{}, map[string]*elfsym.File{}}
}

// rule returns the rule for an address of the process.
func (w *walker) rule(addr uint64) (Info, uint32) {
	w.t.Helper()
	i := slices.IndexFunc(w.maps, func(m proc.Mapping) bool { return addr >= m.Start && addr < m.End })
	if i < 0 {
		w.t.Fatalf("nothing is mapped at %#x", addr)
	}
	m := w.maps[i]
	if w.tables[m.Path] == nil {
		f, err := w.p.OpenMapping(m)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { f.Close() })
		size, err := regularSize(f)
		if err != nil {
			w.t.Fatal(err)
		}
		if w.tables[m.Path], err = Extract(f); err != nil {
			w.t.Fatal(err)
		}
		if w.files[m.Path], err = elfsym.Open(f, size); err != nil {
			w.t.Fatal(err)
		}
	}
	vaddr, ok := w.files[m.Path].OffsetToVaddr(addr - m.Start + m.Offset)
	if !ok {
		w.t.Fatalf("%#x is in no segment of %s", addr, m.Path)
	}
	info, delta, ok := w.tables[m.Path].Lookup(vaddr)
	if !ok {
		w.t.Fatalf("no row for %#x of %s", vaddr, m.Path)
	}
	return info, delta
}

// walk returns the pcs of all frames.
func (w *walker) walk(r Registers) (pcs []uint64) {
	w.t.Helper()
	read := func(addr uint64) (uint64, bool) {
		var b [8]byte
		_, err := w.p.ReadAt(b[:], int64(addr))
		return binary.LittleEndian.Uint64(b[:]), err == nil
	}
	for leaf := true; len(pcs) < 200; {
		pcs = append(pcs, r.PC)
		at := r.PC
		if !leaf {
			at--
		}
		info, delta := w.rule(at)
		var res Result
		switch res, leaf = Step(info, delta, &r, read); res {
		case Caller:
		case Done:
			return pcs
		default:
			w.t.Fatalf("frame %d at %#x, rule %+v: result %d", len(pcs), at, info, res)
		}
	}
	w.t.Fatal("the stack has no end")
	return nil
}

// The rules of compiled code, a signal trampoline, frames by rbp and a thread's
// start, against the unwinder of glibc.
func TestStepAgainstGlibc(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("Step is for amd64, this is %s", runtime.GOARCH)
	}
	for _, flags := range [][]string{{"-O2"}, {"-O0"}, {"-O3", "-fcf-protection=none", "-fomit-frame-pointer"}, {"-O2", "-static"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			path := testutil.BuildC(t, []string{"pkg/unwind/testdata/walk.c"}, flags...)
			target := testutil.Start(t, path)
			target.WaitLine("ready")
			var tid int
			var want []uint64
			for line := range strings.Lines(target.Output()) {
				var at uint64
				if _, err := fmt.Sscanf(line, "at %v", &at); err == nil {
					want = append(want, at)
				}
				fmt.Sscanf(line, "tid %d", &tid)
			}
			waitForRead(t, tid)
			got := newWalker(t, target.PID()).walk(registers(t, tid))
			// In common are the frames from the handler on: wait_here's pc is
			// in another call, and glibc's read has frames of its own.
			n := len(want) - 1
			if n < 40 || len(got) < n {
				t.Fatalf("%d frames of %d: %#x", len(got), len(want), got)
			}
			if diff := cmp.Diff(want[1:], got[len(got)-n:]); diff != "" {
				t.Errorf("frames (-glibc +rows):\n%s", diff)
			}
			if len(got)-n > 4 {
				t.Errorf("%d frames below the handler", len(got)-n)
			}
			target.Send("")
			if err := target.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// waitForRead returns when a thread is in read(2) on its standard input, which
// it is about to call.
func waitForRead(t *testing.T, tid int) {
	t.Helper()
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(b, fmt.Appendf(nil, "%d 0x0 ", syscall.SYS_READ)) {
			return
		}
		runtime.Gosched()
	}
}
