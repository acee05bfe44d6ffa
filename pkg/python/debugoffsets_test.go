// SPDX-License-Identifier: Apache-2.0

package python

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// debugMemory makes the _Py_DebugOffsets of a version whose layout is the known
// one, at address 0x1000.
func debugMemory(minor uint8) (memory, func(word int, value uint64)) {
	l, w := layouts[minor], debugOffsets[minor]
	b := make([]byte, 8*w.size)
	copy(b, debugCookie)
	set := func(word int, value uint64) { put(b, uint32(8*word), value) }
	set(wordVersion, 3<<24|uint64(minor)<<16|0xf0)
	for word, value := range map[int]uint32{
		w.runtimeSize: 1 << 18, w.interpretersHead: l.InterpretersHead,
		w.interpSize: 1 << 17, w.interpNext: l.InterpNext, w.threadsHead: l.InterpThreadsHead,
		w.threadSize: 300, w.threadPrev: l.ThreadPrev, w.threadNext: l.ThreadNext,
		w.threadInterp: l.ThreadInterp, w.currentFrame: l.ThreadFrame, w.threadID: l.ThreadID,
		w.frameSize: 88, w.framePrev: l.FramePrev, w.executable: l.FrameCode,
		w.instrPtr: l.FrameInstr, w.owner: uint32(l.FrameOwner),
		w.codeSize: 216, w.filename: l.CodeFilename, w.qualname: l.CodeQualname,
		w.lineTable: l.CodeLineTable, w.firstLine: l.CodeFirstLine, w.adaptive: l.CodeAdaptive,
		w.bytesSize: l.BytesSize, w.bytesData: l.BytesData,
		w.unicodeSize: 64, w.unicodeState: l.UnicodeState, w.unicodeLength: l.UnicodeLength, w.asciiSize: l.AsciiData,
	} {
		set(word, uint64(value))
	}
	return memory{0x1000: b}, set
}

func debugRuntime(minor uint8) *Runtime {
	return &Runtime{
		Version: Version{Major: 3, Minor: minor, Level: 0xf}, Path: "/usr/bin/python3",
		Layout: layouts[minor], RuntimeAddr: 0x1000,
	}
}

func TestDebugOffsets(t *testing.T) {
	for minor, w := range debugOffsets {
		mem, set := debugMemory(minor)
		r := debugRuntime(minor)
		if err := r.readDebugOffsets(mem); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(layouts[minor], r.Layout); diff != "" {
			t.Errorf("3.%d: layout (-want +got):\n%s", minor, diff)
		}
		set(w.threadsHead, 12344)
		if err := r.readDebugOffsets(mem); err != nil || r.Layout.InterpThreadsHead != 12344 {
			t.Errorf("3.%d: InterpThreadsHead = %d, %v, want what the target says", minor, r.Layout.InterpThreadsHead, err)
		}
	}
}

func TestDebugOffsetsRefused(t *testing.T) {
	for minor, w := range debugOffsets {
		for name, spoil := range map[string]func(mem memory, set func(int, uint64)){
			"cookie":                 func(_ memory, set func(int, uint64)) { set(0, 0) },
			"version":                func(_ memory, set func(int, uint64)) { set(wordVersion, 0x030c01f0) },
			"offset beyond the size": func(_ memory, set func(int, uint64)) { set(w.threadID, 300) },
			"absurd size":            func(_ memory, set func(int, uint64)) { set(w.interpSize, 1<<40) },
			"scattered code object":  func(_ memory, set func(int, uint64)) { set(w.lineTable, 8) },
			"absurd bytes object":    func(_ memory, set func(int, uint64)) { set(w.bytesData, 1<<40) },
		} {
			mem, set := debugMemory(minor)
			spoil(mem, set)
			var layout *LayoutError
			if err := debugRuntime(minor).readDebugOffsets(mem); !errors.As(err, &layout) {
				t.Errorf("3.%d, %s: error = %v, want a LayoutError", minor, name, err)
			}
		}
		mem, set := debugMemory(minor)
		set(wordFreeThreaded, 1)
		var unsupported *UnsupportedError
		if err := debugRuntime(minor).readDebugOffsets(mem); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "free-threaded") {
			t.Errorf("3.%d: error = %v, want an UnsupportedError that says why", minor, err)
		}
	}
}
