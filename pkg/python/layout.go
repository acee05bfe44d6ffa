// SPDX-License-Identifier: Apache-2.0

package python

// Layout is where one CPython build keeps what a stack needs: byte offsets into
// its structures, as plain numbers, so that one generic reader (the BPF
// programs, or ReadStack) serves every version without a version branch:
//
//	tstate = thread in the lists at _PyRuntime+InterpretersHead whose word at
//	         ThreadID is the thread pointer (fs base) of the running thread
//	frame  = word at tstate+ThreadFrame
//	if FrameIndirect >= 0: frame = word at frame+FrameIndirect
//	while frame != 0:
//	    entry = FrameOwner < 0 || byte at frame+FrameOwner >= EntryValue
//	    code  = word at frame+FrameCode & CodeMask   (meaningless if entry && EntryIsShim)
//	    instr = InstrIsIndex ? (int32 at frame+FrameInstr) : (word at frame+FrameInstr)
//	    frame = word at frame+FramePrev
//
// The numbers come from offsetof on the headers of each version
// (Include/cpython, Include/internal) and from 3.13 on from _Py_DebugOffsets in
// the target itself; layout_test.go compares them with every installed header.
type Layout struct {
	// InterpretersHead is the offset in _PyRuntime of interpreters.head, the
	// first PyInterpreterState.
	InterpretersHead uint32

	// Offsets in PyInterpreterState.
	InterpNext        uint32 // the next interpreter
	InterpThreadsHead uint32 // the first PyThreadState

	// Offsets in PyThreadState.
	ThreadNext     uint32
	ThreadPrev     uint32
	ThreadInterp   uint32 // the owning PyInterpreterState
	ThreadID       uint32 // pthread_self() of the thread: on x86-64 its fs base
	ThreadUniqueID uint32 // uint64, never reused within an interpreter
	ThreadFrame    uint32 // pointer to the top frame, or to the _PyCFrame that has it

	// FrameIndirect is -1 where ThreadFrame points to the top frame itself
	// (3.9, 3.10: PyFrameObject; 3.13 on: _PyInterpreterFrame); else the offset
	// of current_frame in the _PyCFrame that it points to (3.11, 3.12).
	FrameIndirect int32

	// Offsets in a frame: PyFrameObject in 3.9 and 3.10, else
	// _PyInterpreterFrame.
	FrameSize  uint32 // bytes that cover every field below, at most MaxFrameSize
	FrameCode  uint32 // the PyCodeObject, tagged where CodeMask is not all ones
	FramePrev  uint32 // the caller's frame
	FrameInstr uint32 // see InstrIsIndex

	// FrameOwner is the offset of the byte that tells entries, -1 where every
	// frame is one (3.9, 3.10: one eval call a frame).
	FrameOwner int32

	// EntryValue is the least value of the byte at FrameOwner that marks an
	// entry: 1 in 3.11 (is_entry), FRAME_OWNED_BY_CSTACK in 3.12 and 3.13,
	// FRAME_OWNED_BY_INTERPRETER in 3.14 (and above it FRAME_OWNED_BY_CSTACK).
	EntryValue uint32

	// InstrIsIndex says that FrameInstr holds an int32 index of the last
	// instruction (3.9: in bytes; 3.10: in code units; -1: not started) rather
	// than a pointer into the code object's bytecode.
	InstrIsIndex bool

	// InstrUnit is the number of bytes that such an index counts: 1 in 3.9, 2 in
	// 3.10, 1 where InstrIsIndex is false.
	InstrUnit uint32

	// EntryIsShim says what an entry is. True (3.12 on): a frame without code
	// of its own, pushed below the first frame of an eval call. False: itself
	// the first, outermost frame of its eval call.
	EntryIsShim bool

	// CodeMask is and-ed with the word at FrameCode; it removes the tag of
	// 3.14's _PyStackRef.
	CodeMask uint64

	// Offsets in PyCodeObject.
	CodeFilename  uint32
	CodeQualname  uint32 // 3.9 and 3.10 have no qualname: co_name
	CodeLineTable uint32
	CodeFirstLine uint32 // int32
	// CodeIdent is where IdentSize bytes start that cover the pointers to file
	// name, name and line table: the identity of a code object, which differs
	// when its address is reused by another (or, rarely, does not, when the
	// other has the same strings and line table, and thus the same lines).
	CodeIdent uint32
	// CodeAdaptive is the offset of the first instruction in the code object,
	// so that instr - (code+CodeAdaptive) is the instruction's byte offset. 0
	// where InstrIsIndex.
	CodeAdaptive uint32
	// CodeFirstTraceable is the offset of int32 _co_firsttraceable, the index in
	// code units of the first instruction that may be seen in a traceback. 0
	// where there is none.
	CodeFirstTraceable uint32

	// LineFormat is the encoding of the bytes object at CodeLineTable.
	LineFormat LineFormat

	// Offsets in str objects.
	UnicodeLength uint32 // int64, in code points
	UnicodeState  uint32 // uint32 of bit fields
	AsciiData     uint32 // data of a compact ASCII string
	CompactData   uint32 // data of any other compact string
	LegacyData    uint32 // pointer to the data of a string that is not compact

	// Offsets in bytes objects.
	BytesSize uint32 // int64
	BytesData uint32
}

// LineFormat is an encoding of a code object's line table.
type LineFormat uint8

// The encodings, named for what a table is made of.
const (
	LinesDelta    LineFormat = iota + 1 // 3.9: co_lnotab (Objects/lnotab_notes.txt)
	LinesRange                          // 3.10: co_linetable of PEP 626 (Objects/lnotab_notes.txt)
	LinesLocation                       // 3.11 on: co_linetable of PEP 657 (Objects/locations.md)
)

const (
	// MaxFrameSize bounds Layout.FrameSize: the BPF programs read a frame in
	// one piece of this size.
	MaxFrameSize = 128

	// IdentSize is the number of bytes at Layout.CodeIdent.
	IdentSize = 32
)

// Offset converts what a frame says of its instruction into the byte offset of
// that instruction from the first: code is the address of the frame's code
// object, instr the word (where InstrIsIndex, the int32) at FrameInstr. The
// result is negative if the frame has not started.
func (l *Layout) Offset(code, instr uint64) int64 {
	if l.InstrIsIndex {
		return int64(int32(instr)) * int64(l.InstrUnit)
	}
	return int64(instr - code - uint64(l.CodeAdaptive))
}

// layouts are those of 3.9.18, 3.10.13, 3.11.7, 3.12.1, 3.13.0 and 3.14.8, by
// minor version. Patch releases of 3.9 to 3.12 keep them, as far as is known, and
// validate checks it in each target. For 3.13 and later, where patch releases do
// move fields, most of it is replaced by what the target's _Py_DebugOffsets say.
var layouts = map[uint8]Layout{
	9: {
		InterpretersHead: 32, InterpNext: 0, InterpThreadsHead: 8,
		ThreadNext: 8, ThreadPrev: 0, ThreadInterp: 16, ThreadID: 176, ThreadUniqueID: 256, ThreadFrame: 24,
		FrameIndirect: -1, FrameSize: 112, FrameCode: 32, FramePrev: 24, FrameInstr: 104,
		FrameOwner: -1, InstrIsIndex: true, InstrUnit: 1, CodeMask: ^uint64(0), LineFormat: LinesDelta,
		CodeFilename: 104, CodeQualname: 112, CodeLineTable: 120, CodeFirstLine: 40, CodeIdent: 96,
		UnicodeLength: 16, UnicodeState: 32, AsciiData: 48, CompactData: 72, LegacyData: 72,
		BytesSize: 16, BytesData: 32,
	},
	10: {
		InterpretersHead: 32, InterpNext: 0, InterpThreadsHead: 8,
		ThreadNext: 8, ThreadPrev: 0, ThreadInterp: 16, ThreadID: 176, ThreadUniqueID: 256, ThreadFrame: 24,
		FrameIndirect: -1, FrameSize: 104, FrameCode: 32, FramePrev: 24, FrameInstr: 96,
		FrameOwner: -1, InstrIsIndex: true, InstrUnit: 2, CodeMask: ^uint64(0), LineFormat: LinesRange,
		CodeFilename: 104, CodeQualname: 112, CodeLineTable: 120, CodeFirstLine: 40, CodeIdent: 96,
		UnicodeLength: 16, UnicodeState: 32, AsciiData: 48, CompactData: 72, LegacyData: 72,
		BytesSize: 16, BytesData: 32,
	},
	11: {
		InterpretersHead: 40, InterpNext: 0, InterpThreadsHead: 16,
		ThreadNext: 8, ThreadPrev: 0, ThreadInterp: 16, ThreadID: 152, ThreadUniqueID: 240, ThreadFrame: 56,
		FrameIndirect: 8, FrameSize: 72, FrameCode: 32, FramePrev: 48, FrameInstr: 56,
		FrameOwner: 68, EntryValue: 1, InstrUnit: 1, CodeMask: ^uint64(0), LineFormat: LinesLocation,
		CodeFilename: 112, CodeQualname: 128, CodeLineTable: 136, CodeFirstLine: 72, CodeIdent: 112,
		CodeAdaptive: 184, CodeFirstTraceable: 168,
		UnicodeLength: 16, UnicodeState: 32, AsciiData: 48, CompactData: 72, LegacyData: 72,
		BytesSize: 16, BytesData: 32,
	},
	12: {
		InterpretersHead: 40, InterpNext: 0, InterpThreadsHead: 72,
		ThreadNext: 8, ThreadPrev: 0, ThreadInterp: 16, ThreadID: 136, ThreadUniqueID: 224, ThreadFrame: 56,
		FrameIndirect: 0, FrameSize: 72, FrameCode: 0, FramePrev: 8, FrameInstr: 56,
		FrameOwner: 70, EntryValue: 3, EntryIsShim: true, InstrUnit: 1, CodeMask: ^uint64(0), LineFormat: LinesLocation,
		CodeFilename: 112, CodeQualname: 128, CodeLineTable: 136, CodeFirstLine: 68, CodeIdent: 112,
		CodeAdaptive: 192, CodeFirstTraceable: 176,
		UnicodeLength: 16, UnicodeState: 32, AsciiData: 40, CompactData: 56, LegacyData: 56,
		BytesSize: 16, BytesData: 32,
	},
	13: {
		InterpretersHead: 632, InterpNext: 7264, InterpThreadsHead: 7344,
		ThreadNext: 8, ThreadPrev: 0, ThreadInterp: 16, ThreadID: 152, ThreadUniqueID: 224, ThreadFrame: 72,
		FrameIndirect: -1, FrameSize: 72, FrameCode: 0, FramePrev: 8, FrameInstr: 56,
		FrameOwner: 70, EntryValue: 3, EntryIsShim: true, InstrUnit: 1, CodeMask: ^uint64(0), LineFormat: LinesLocation,
		CodeFilename: 112, CodeQualname: 128, CodeLineTable: 136, CodeFirstLine: 68, CodeIdent: 112,
		CodeAdaptive: 200, CodeFirstTraceable: 184,
		UnicodeLength: 16, UnicodeState: 32, AsciiData: 40, CompactData: 56, LegacyData: 56,
		BytesSize: 16, BytesData: 32,
	},
	14: {
		InterpretersHead: 808, InterpNext: 7272, InterpThreadsHead: 7344,
		ThreadNext: 8, ThreadPrev: 0, ThreadInterp: 16, ThreadID: 152, ThreadUniqueID: 224, ThreadFrame: 72,
		FrameIndirect: -1, FrameSize: 80, FrameCode: 0, FramePrev: 8, FrameInstr: 56,
		FrameOwner: 74, EntryValue: 3, EntryIsShim: true, InstrUnit: 1, CodeMask: ^uint64(3), LineFormat: LinesLocation,
		CodeFilename: 112, CodeQualname: 128, CodeLineTable: 136, CodeFirstLine: 68, CodeIdent: 112,
		CodeAdaptive: 208, CodeFirstTraceable: 192,
		UnicodeLength: 16, UnicodeState: 32, AsciiData: 40, CompactData: 56, LegacyData: 56,
		BytesSize: 16, BytesData: 32,
	},
}
