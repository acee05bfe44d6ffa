// SPDX-License-Identifier: Apache-2.0

package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Bounds on walks of the target's lists, which may be damaged or changing. They
// are far above what a process can have.
const (
	maxInterpreters = 1 << 12
	maxThreads      = 1 << 17 // kernel.threads-max is about 10^5 on a machine of 16 GB
)

// Thread is a thread state of the target.
type Thread struct {
	Address     uint64 // of the PyThreadState
	Interpreter uint64 // of its PyInterpreterState
	ID          uint64 // pthread_self() of the thread, its thread pointer
	UniqueID    uint64 // of the thread state within its interpreter
}

// errListBroken says that a list of the target is not consistent. A running
// target may be changing it, so it is worth another try.
var errListBroken = errors.New("not a consistent list")

// Threads reads the thread states of all interpreters. It is safe for
// concurrent use as far as mem is. The target may be running: a list that
// changes while it is read is an error, and worth another try.
func (r *Runtime) Threads(mem Target) ([]Thread, error) {
	interps, err := r.interpreters(mem)
	if err != nil {
		return nil, err
	}
	var threads []Thread
	for _, interp := range interps {
		threads, err = r.appendThreads(threads, mem, interp)
		if err != nil {
			return nil, fmt.Errorf("reading the threads of interpreter %#x: %w", interp, err)
		}
	}
	return threads, nil
}

func (r *Runtime) interpreters(mem Target) ([]uint64, error) {
	at, err := readWord(mem, r.RuntimeAddr, r.Layout.InterpretersHead)
	if err != nil {
		return nil, fmt.Errorf("reading the list of interpreters: %w", err)
	}
	seen := make(map[uint64]bool)
	var interps []uint64
	for at != 0 {
		if seen[at] || len(interps) == maxInterpreters {
			return nil, fmt.Errorf("reading the list of interpreters at %#x: %w", at, errListBroken)
		}
		seen[at] = true
		interps = append(interps, at)
		if at, err = readWord(mem, at, r.Layout.InterpNext); err != nil {
			return nil, fmt.Errorf("reading the list of interpreters: %w", err)
		}
	}
	return interps, nil
}

// appendThreads reads the threads of one interpreter. Each must name the
// interpreter as its own and the thread before it as its previous one, which
// nothing but a thread state does.
func (r *Runtime) appendThreads(threads []Thread, mem Target, interp uint64) ([]Thread, error) {
	l := &r.Layout
	at, err := readWord(mem, interp, l.InterpThreadsHead)
	if err != nil {
		return nil, err
	}
	size := max(l.ThreadNext, l.ThreadPrev, l.ThreadInterp, l.ThreadID, l.ThreadUniqueID) + 8
	b := make([]byte, size)
	word := func(off uint32) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	var prev uint64
	for at != 0 {
		if len(threads) == maxThreads {
			return nil, errListBroken
		}
		if err := readFull(mem, b, at); err != nil {
			return nil, err
		}
		if word(l.ThreadInterp) != interp || word(l.ThreadPrev) != prev {
			return nil, fmt.Errorf("thread state at %#x: %w", at, errListBroken)
		}
		threads = append(threads, Thread{
			Address: at, Interpreter: interp, ID: word(l.ThreadID), UniqueID: word(l.ThreadUniqueID),
		})
		prev, at = at, word(l.ThreadNext)
	}
	return threads, nil
}

// readWord reads the uint64 at an offset of a structure in the target.
func readWord(mem Target, base uint64, off uint32) (uint64, error) {
	var b [8]byte
	if err := readFull(mem, b[:], base+uint64(off)); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// readFull fills b from the target's memory.
func readFull(mem Target, b []byte, addr uint64) error {
	if addr > math.MaxInt64 {
		return fmt.Errorf("reading %d bytes at %#x: not an address of a user program", len(b), addr)
	}
	n, err := mem.ReadAt(b, int64(addr))
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = errors.New("short read")
	}
	return fmt.Errorf("reading %d bytes at %#x: %w", len(b), addr, err)
}
