// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/unfreed/unfreed/pkg/proc"
)

// trapTarget does nothing; it is where a trap is measured.
func trapTarget()

// trapAddress is where trapTarget's code is; a Go function value would lead to
// a wrapper around it.
func trapAddress() uint64

const (
	trapRounds = 5
	trapCalls  = 200 // a round takes under a millisecond
)

// measureTrap returns what one hit of an empty probe costs on this machine, the
// median of a few rounds on a function of this very program; 0 if it cannot be
// measured. Traps cost from 1 to 5 microseconds, so no constant would do.
func measureTrap() time.Duration {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0
	}
	defer prog.Close()
	ex, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0
	}
	off, ok := ownOffset(trapAddress())
	if !ok {
		return 0
	}
	l, err := ex.Uprobe("trap", prog, &link.UprobeOptions{Address: off, PID: os.Getpid()})
	if err != nil {
		return 0
	}
	defer l.Close()
	var rounds []time.Duration
	for range trapRounds {
		begin := time.Now()
		for range trapCalls {
			trapTarget()
		}
		rounds = append(rounds, time.Since(begin)/trapCalls)
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2]
}

// ownOffset is the place in this program's file of a function at an address.
func ownOffset(addr uint64) (uint64, bool) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	maps, err := proc.ParseMaps(f)
	if err != nil {
		return 0, false
	}
	for _, m := range maps {
		if m.Exec && addr >= m.Start && addr < m.End {
			return addr - m.Start + m.Offset, true
		}
	}
	return 0, false
}
