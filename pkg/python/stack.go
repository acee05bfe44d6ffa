// SPDX-License-Identifier: Apache-2.0

package python

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Frame is one frame of a thread's chain of Python frames.
type Frame struct {
	Address uint64 // of the code object
	// Offset is that of the instruction, in bytes from the first: the one
	// being executed, in a caller the call. See Layout.Offset.
	Offset int64
	// Entry says what the layout's test of the owner byte said.
	Entry bool
	// Code is nil where it is unknown, and in shims, which have none.
	Code *Code
}

// maxChain bounds the frames that ReadStack follows. Python's own limit of
// recursion is 1,000 unless a program raises it.
const maxChain = 1 << 16

// Errors of ReadStack.
var (
	// ErrNoThread says that no thread state has the id asked for.
	ErrNoThread = errors.New("the thread has no Python state")

	errChainEndless = errors.New("the chain of frames does not end")
)

// ReadStack reads the Python frames of one thread, leaf first, shims included:
// in user space what the BPF programs do in the kernel. threadID is
// pthread_self() of the thread. The thread must not run meanwhile, or frames may
// be missing or wrong. A frame whose code object cannot be decoded has no Code.
//
// A thread that has used several interpreters has a state in each; the newest
// interpreter in which it runs code counts.
func ReadStack(mem Target, r *Runtime, threadID uint64) ([]Frame, error) {
	threads, err := r.Threads(mem)
	if err != nil {
		return nil, err
	}
	err = ErrNoThread
	var frames []Frame
	for _, t := range threads {
		if t.ID != threadID {
			continue
		}
		if frames, err = r.readFrames(mem, t); len(frames) > 0 {
			break
		}
	}
	return frames, err
}

// topFrame returns the address of a thread's innermost frame, 0 if it runs no
// Python code.
func (r *Runtime) topFrame(mem Target, t Thread) (uint64, error) {
	l := &r.Layout
	at, err := readWord(mem, t.Address, l.ThreadFrame)
	if err == nil && l.FrameIndirect >= 0 && at != 0 {
		at, err = readWord(mem, at, uint32(l.FrameIndirect))
	}
	if err != nil {
		return 0, fmt.Errorf("reading the top frame of thread %#x: %w", t.ID, err)
	}
	return at, nil
}

func (r *Runtime) readFrames(mem Target, t Thread) ([]Frame, error) {
	l := &r.Layout
	at, err := r.topFrame(mem, t)
	if err != nil {
		return nil, err
	}
	codes := make(map[uint64]*Code)
	seen := make(map[uint64]bool)
	var frames []Frame
	b := make([]byte, l.FrameSize)
	for at != 0 {
		if len(frames) == maxChain || seen[at] {
			return frames, errChainEndless
		}
		seen[at] = true
		if err := readFull(mem, b, at); err != nil {
			return frames, fmt.Errorf("reading frame %d of thread %#x: %w", len(frames), t.ID, err)
		}
		f := l.parseFrame(b)
		if f.Address != 0 {
			code, known := codes[f.Address]
			if !known {
				code = readAndDecode(l, mem, f.Address)
				codes[f.Address] = code
			}
			f.Code = code
		}
		frames = append(frames, f)
		at = binary.LittleEndian.Uint64(b[l.FramePrev:])
	}
	return frames, nil
}

// parseFrame reads a frame from its first Layout.FrameSize bytes.
func (l *Layout) parseFrame(b []byte) Frame {
	f := Frame{Entry: l.FrameOwner < 0}
	if l.FrameOwner >= 0 {
		f.Entry = uint32(b[l.FrameOwner]) >= l.EntryValue
	}
	if f.Entry && l.EntryIsShim {
		return f
	}
	f.Address = binary.LittleEndian.Uint64(b[l.FrameCode:]) & l.CodeMask
	if l.InstrIsIndex {
		f.Offset = l.Offset(f.Address, uint64(binary.LittleEndian.Uint32(b[l.FrameInstr:])))
	} else {
		f.Offset = l.Offset(f.Address, binary.LittleEndian.Uint64(b[l.FrameInstr:]))
	}
	return f
}

func readAndDecode(l *Layout, mem Target, addr uint64) *Code {
	rec, err := ReadCode(l, mem, addr)
	if err != nil {
		return nil
	}
	code, err := DecodeCode(l, rec, mem)
	if err != nil {
		return nil
	}
	return code
}
