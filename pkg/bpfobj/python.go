// SPDX-License-Identifier: Apache-2.0

package bpfobj

// PythonLayout tells the programs where CPython keeps what they read. Offsets
// are in bytes; see pkg/python Layout, whose numbers these are.
type PythonLayout struct {
	Interpreters uint64 // target address of the pointer to the first interpreter
	CodeMask     uint64

	InterpNext, InterpThreads                                      uint32
	ThreadNext, ThreadPrev, ThreadInterp, ThreadID, ThreadUniqueID uint32
	ThreadFrame                                                    uint32
	FrameIndirect                                                  int32
	FrameSize, FrameCode, FramePrev, FrameInstr                    uint32
	FrameOwner                                                     int32
	EntryValue                                                     uint32
	EntryIsShim, InstrIsIndex                                      bool
	CodeIdent, CodeFirstLine, CodeAdaptive, CodeFirstTraceable     uint32
	CodeFilename, CodeName, CodeLineTable                          uint32
	// UnicodeHeader covers every kind of str up to its text or the pointer to
	// it, UnicodeMinHeader the shortest kind.
	UnicodeHeader, UnicodeMinHeader, UnicodeLength uint32
	BytesHeader, BytesLength                       uint32
}

func (l *PythonLayout) wire() allocPythonLayout {
	return allocPythonLayout{
		Interpreters: l.Interpreters, CodeMask: l.CodeMask,
		InterpNext: l.InterpNext, InterpThreads: l.InterpThreads,
		ThreadNext: l.ThreadNext, ThreadPrev: l.ThreadPrev, ThreadInterp: l.ThreadInterp,
		ThreadId: l.ThreadID, ThreadUniqueId: l.ThreadUniqueID, ThreadFrame: l.ThreadFrame,
		FrameIndirect: l.FrameIndirect, FrameSize: l.FrameSize, FrameCode: l.FrameCode,
		FramePrev: l.FramePrev, FrameInstr: l.FrameInstr, FrameOwner: l.FrameOwner,
		EntryValue: l.EntryValue, Shim: bool32(l.EntryIsShim), InstrIsIndex: bool32(l.InstrIsIndex),
		CodeIdent: l.CodeIdent, CodeFirstLine: l.CodeFirstLine, CodeAdaptive: l.CodeAdaptive,
		CodeFirstTraceable: l.CodeFirstTraceable,
		IdentFilename:      (l.CodeFilename - l.CodeIdent) / 8,
		IdentName:          (l.CodeName - l.CodeIdent) / 8,
		IdentLinetable:     (l.CodeLineTable - l.CodeIdent) / 8,
		UnicodeHeader:      l.UnicodeHeader, UnicodeLength: l.UnicodeLength,
		BytesHeader: l.BytesHeader, BytesLength: l.BytesLength,
		Enabled: 1,
	}
}
