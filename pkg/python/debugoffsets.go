// SPDX-License-Identifier: Apache-2.0

package python

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// debugCookie is what _Py_DebugOffsets, and with it _PyRuntime, begins with.
const debugCookie = "xdebugpy"

// debugWords says at which word of _Py_DebugOffsets a field stands: the struct
// is one of uint64 fields, described in Include/internal/pycore_runtime.h of
// 3.13 and pycore_debug_offsets.h of 3.14, which do not change within a minor
// version.
type debugWords struct {
	size int // words up to and including the last field used

	runtimeSize, interpretersHead                                            int
	interpSize, interpNext, threadsHead                                      int
	threadSize, threadPrev, threadNext, threadInterp, currentFrame, threadID int
	frameSize, framePrev, executable, instrPtr, owner                        int
	codeSize, filename, qualname, lineTable, firstLine, adaptive             int
	bytesSize, bytesData                                                     int
	unicodeSize, unicodeState, unicodeLength, asciiSize                      int
}

// Words that have the same place in every version.
const (
	wordVersion      = 1
	wordFreeThreaded = 2
)

var debugOffsets = map[uint8]debugWords{
	13: {
		size:        71,
		runtimeSize: 3, interpretersHead: 5,
		interpSize: 6, interpNext: 8, threadsHead: 9,
		threadSize: 19, threadPrev: 20, threadNext: 21, threadInterp: 22, currentFrame: 23, threadID: 24,
		frameSize: 28, framePrev: 29, executable: 30, instrPtr: 31, owner: 33,
		codeSize: 34, filename: 35, qualname: 37, lineTable: 38, firstLine: 39, adaptive: 43,
		bytesSize: 65, bytesData: 66,
		unicodeSize: 67, unicodeState: 68, unicodeLength: 69, asciiSize: 70,
	},
	14: {
		size:        81,
		runtimeSize: 3, interpretersHead: 5,
		interpSize: 6, interpNext: 8, threadsHead: 9,
		threadSize: 22, threadPrev: 23, threadNext: 24, threadInterp: 25, currentFrame: 26, threadID: 27,
		frameSize: 31, framePrev: 32, executable: 33, instrPtr: 34, owner: 36,
		codeSize: 39, filename: 40, qualname: 42, lineTable: 43, firstLine: 44, adaptive: 48,
		bytesSize: 75, bytesData: 76,
		unicodeSize: 77, unicodeState: 78, unicodeLength: 79, asciiSize: 80,
	},
}

// Bounds on the sizes of structures, several times what known builds have. They
// keep a damaged or hostile _Py_DebugOffsets from sending reads far away.
const (
	maxRuntimeSize = 1 << 23 // 3.14.8: 316,616 bytes, most of it the main interpreter
	maxInterpSize  = 1 << 22 // 3.14.8: 231,328 bytes
	maxThreadSize  = 1 << 14 // 3.13.0: 296 bytes
	maxObjectSize  = 1 << 10 // 3.14.8: 216 bytes, a code object
)

// readDebugOffsets replaces what _Py_DebugOffsets in the target states, and
// refuses a free-threaded build.
func (r *Runtime) readDebugOffsets(mem Target) error {
	w, ok := debugOffsets[r.Version.Minor]
	if !ok {
		return &UnsupportedError{Version: r.Version, Path: r.Path, Reason: "its _Py_DebugOffsets is unknown"}
	}
	b := make([]byte, 8*w.size)
	if _, err := mem.ReadAt(b, int64(r.RuntimeAddr)); err != nil {
		return fmt.Errorf("reading _PyRuntime at %#x: %w", r.RuntimeAddr, err)
	}
	if string(b[:8]) != debugCookie {
		return r.layoutError(fmt.Errorf("_PyRuntime begins with %q, not %q", b[:8], debugCookie))
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if v, ok := versionOfHex(uint32(word(wordVersion))); !ok || v != r.Version {
		return r.layoutError(fmt.Errorf("_Py_DebugOffsets is of version %s", v))
	}
	if word(wordFreeThreaded) != 0 {
		return &UnsupportedError{Version: r.Version, Path: r.Path, Reason: "it is a free-threaded build (without the GIL)"}
	}
	if err := w.apply(&r.Layout, word); err != nil {
		return r.layoutError(fmt.Errorf("reading _Py_DebugOffsets: %w", err))
	}
	return nil
}

// apply puts the offsets into l. Each must lie within the stated size of its
// structure, and that within its bound.
func (w *debugWords) apply(l *Layout, word func(int) uint64) error {
	var errs []error
	set := func(dst *uint32, field, size int, width, maxSize uint64) {
		off, end := word(field), word(size)
		if end > maxSize || off > end || end-off < width {
			errs = append(errs, fmt.Errorf("word %d: offset %d in a structure of %d bytes", field, off, end))
			return
		}
		*dst = uint32(off)
	}
	set(&l.InterpretersHead, w.interpretersHead, w.runtimeSize, 8, maxRuntimeSize)
	set(&l.InterpNext, w.interpNext, w.interpSize, 8, maxInterpSize)
	set(&l.InterpThreadsHead, w.threadsHead, w.interpSize, 8, maxInterpSize)
	set(&l.ThreadPrev, w.threadPrev, w.threadSize, 8, maxThreadSize)
	set(&l.ThreadNext, w.threadNext, w.threadSize, 8, maxThreadSize)
	set(&l.ThreadInterp, w.threadInterp, w.threadSize, 8, maxThreadSize)
	set(&l.ThreadFrame, w.currentFrame, w.threadSize, 8, maxThreadSize)
	set(&l.ThreadID, w.threadID, w.threadSize, 8, maxThreadSize)
	set(&l.FramePrev, w.framePrev, w.frameSize, 8, MaxFrameSize)
	set(&l.FrameCode, w.executable, w.frameSize, 8, MaxFrameSize)
	set(&l.FrameInstr, w.instrPtr, w.frameSize, 8, MaxFrameSize)
	var owner uint32
	set(&owner, w.owner, w.frameSize, 1, MaxFrameSize)
	l.FrameOwner = int32(owner)
	set(&l.CodeFilename, w.filename, w.codeSize, 8, maxObjectSize)
	set(&l.CodeQualname, w.qualname, w.codeSize, 8, maxObjectSize)
	set(&l.CodeLineTable, w.lineTable, w.codeSize, 8, maxObjectSize)
	set(&l.CodeFirstLine, w.firstLine, w.codeSize, 4, maxObjectSize)
	set(&l.CodeAdaptive, w.adaptive, w.codeSize, 1, maxObjectSize)
	set(&l.UnicodeLength, w.unicodeLength, w.unicodeSize, 8, maxObjectSize)
	set(&l.UnicodeState, w.unicodeState, w.unicodeSize, 4, maxObjectSize)
	set(&l.AsciiData, w.asciiSize, w.unicodeSize, 8, maxObjectSize)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// ob_sval is the last byte of a structure whose size is rounded up, and the
	// structure's size is not among the words used.
	size, data := word(w.bytesSize), word(w.bytesData)
	if size > maxObjectSize || data > maxObjectSize {
		return fmt.Errorf("bytes objects keep their size at %d and their data at %d", size, data)
	}
	l.BytesSize, l.BytesData = uint32(size), uint32(data)
	// Behind PyASCIIObject follow utf8_length and utf8, then the data pointer.
	l.CompactData = l.AsciiData + 16
	l.LegacyData = l.CompactData
	return l.derive()
}

// derive sets what follows from the rest: how much of a frame to read, and
// where the identity of a code object stands.
func (l *Layout) derive() error {
	l.FrameSize = max(l.FrameCode+8, l.FramePrev+8, l.FrameInstr+8, uint32(l.FrameOwner)+1)
	l.FrameSize = (l.FrameSize + 7) &^ 7
	l.CodeIdent = min(l.CodeFilename, l.CodeQualname, l.CodeLineTable)
	if end := max(l.CodeFilename, l.CodeQualname, l.CodeLineTable) + 8; end-l.CodeIdent > IdentSize {
		return fmt.Errorf("the strings and the line table of a code object stand %d bytes apart, more than %d",
			end-l.CodeIdent, IdentSize)
	}
	return nil
}

func (r *Runtime) layoutError(err error) error {
	return &LayoutError{Version: r.Version, Path: r.Path, Err: err}
}
