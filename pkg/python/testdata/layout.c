// SPDX-License-Identifier: Apache-2.0

/*
 * Prints what layout_test.go compares: fields of Layout by name, as the headers
 * of the CPython that this is compiled with have them; and, with "debug." before
 * the name, at which word of _Py_DebugOffsets a field stands.
 */

#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <structmember.h>

#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_frame.h"
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_debug_offsets.h"
#endif

#define PRINT(name, value) printf("%s %lld\n", name, (long long)(value))
#define FIELD(name, type, field) PRINT(name, offsetof(type, field))
#define WORD(name, field) PRINT("debug." name, offsetof(_Py_DebugOffsets, field) / 8)

static void lists(void)
{
	FIELD("InterpretersHead", _PyRuntimeState, interpreters.head);
	FIELD("InterpNext", PyInterpreterState, next);
#if PY_VERSION_HEX >= 0x030b0000
	FIELD("InterpThreadsHead", PyInterpreterState, threads.head);
#else
	FIELD("InterpThreadsHead", PyInterpreterState, tstate_head);
#endif
	FIELD("ThreadNext", PyThreadState, next);
	FIELD("ThreadPrev", PyThreadState, prev);
	FIELD("ThreadInterp", PyThreadState, interp);
	FIELD("ThreadID", PyThreadState, thread_id);
	FIELD("ThreadUniqueID", PyThreadState, id);
}

static void frames(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	FIELD("ThreadFrame", PyThreadState, current_frame);
	PRINT("FrameIndirect", -1);
	FIELD("FrameCode", _PyInterpreterFrame, f_executable);
	FIELD("FramePrev", _PyInterpreterFrame, previous);
	FIELD("FrameInstr", _PyInterpreterFrame, instr_ptr);
	FIELD("FrameOwner", _PyInterpreterFrame, owner);
#elif PY_VERSION_HEX >= 0x030b0000
	FIELD("ThreadFrame", PyThreadState, cframe);
	FIELD("FrameIndirect", _PyCFrame, current_frame);
	FIELD("FrameCode", _PyInterpreterFrame, f_code);
	FIELD("FramePrev", _PyInterpreterFrame, previous);
	FIELD("FrameInstr", _PyInterpreterFrame, prev_instr);
#if PY_VERSION_HEX >= 0x030c0000
	FIELD("FrameOwner", _PyInterpreterFrame, owner);
#else
	FIELD("FrameOwner", _PyInterpreterFrame, is_entry);
#endif
#else
	FIELD("ThreadFrame", PyThreadState, frame);
	PRINT("FrameIndirect", -1);
	FIELD("FrameCode", PyFrameObject, f_code);
	FIELD("FramePrev", PyFrameObject, f_back);
	FIELD("FrameInstr", PyFrameObject, f_lasti);
	PRINT("FrameOwner", -1);
#endif
#if PY_VERSION_HEX >= 0x030e0000
	PRINT("EntryValue", FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030c0000
	PRINT("EntryValue", FRAME_OWNED_BY_CSTACK);
#elif PY_VERSION_HEX >= 0x030b0000
	PRINT("EntryValue", true);
#endif
}

static void objects(void)
{
	FIELD("CodeFilename", PyCodeObject, co_filename);
	FIELD("CodeFirstLine", PyCodeObject, co_firstlineno);
#if PY_VERSION_HEX >= 0x030a0000
	FIELD("CodeLineTable", PyCodeObject, co_linetable);
#else
	FIELD("CodeLineTable", PyCodeObject, co_lnotab);
#endif
#if PY_VERSION_HEX >= 0x030b0000
	FIELD("CodeQualname", PyCodeObject, co_qualname);
	FIELD("CodeAdaptive", PyCodeObject, co_code_adaptive);
	FIELD("CodeFirstTraceable", PyCodeObject, _co_firsttraceable);
	PRINT("unit", sizeof(_Py_CODEUNIT));
#else
	FIELD("CodeQualname", PyCodeObject, co_name);
#endif
	FIELD("UnicodeLength", PyASCIIObject, length);
	FIELD("UnicodeState", PyASCIIObject, state);
	PRINT("AsciiData", sizeof(PyASCIIObject));
	PRINT("CompactData", sizeof(PyCompactUnicodeObject));
	FIELD("LegacyData", PyUnicodeObject, data);
	FIELD("BytesSize", PyVarObject, ob_size);
	FIELD("BytesData", PyBytesObject, ob_sval);
	FIELD("type.members", PyTypeObject, tp_members);
	FIELD("member.offset", struct PyMemberDef, offset);
	PRINT("member.size", sizeof(struct PyMemberDef));
}

static unsigned state_of(const PyASCIIObject *str)
{
	unsigned state;

	memcpy(&state, (const char *)str + offsetof(PyASCIIObject, state), sizeof(state));
	return state;
}

/* The bits of a str's state, found by setting them. */
static void state_bits(void)
{
	PyASCIIObject kind, compact, ascii;

	memset(&kind, 0, sizeof(kind));
	compact = ascii = kind;
	kind.state.kind = 1;
	compact.state.compact = 1;
	ascii.state.ascii = 1;
	PRINT("state.kind", __builtin_ctz(state_of(&kind)));
	PRINT("state.compact", state_of(&compact));
	PRINT("state.ascii", state_of(&ascii));
}

static void debug_offsets(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	WORD("version", version);
	WORD("freeThreaded", free_threaded);
	WORD("runtimeSize", runtime_state.size);
	WORD("interpretersHead", runtime_state.interpreters_head);
	WORD("interpSize", interpreter_state.size);
	WORD("interpNext", interpreter_state.next);
	WORD("threadsHead", interpreter_state.threads_head);
	WORD("threadSize", thread_state.size);
	WORD("threadPrev", thread_state.prev);
	WORD("threadNext", thread_state.next);
	WORD("threadInterp", thread_state.interp);
	WORD("currentFrame", thread_state.current_frame);
	WORD("threadID", thread_state.thread_id);
	WORD("frameSize", interpreter_frame.size);
	WORD("framePrev", interpreter_frame.previous);
	WORD("executable", interpreter_frame.executable);
	WORD("instrPtr", interpreter_frame.instr_ptr);
	WORD("owner", interpreter_frame.owner);
	WORD("codeSize", code_object.size);
	WORD("filename", code_object.filename);
	WORD("qualname", code_object.qualname);
	WORD("lineTable", code_object.linetable);
	WORD("firstLine", code_object.firstlineno);
	WORD("adaptive", code_object.co_code_adaptive);
	WORD("bytesSize", bytes_object.ob_size);
	WORD("bytesData", bytes_object.ob_sval);
	WORD("unicodeSize", unicode_object.size);
	WORD("unicodeState", unicode_object.state);
	WORD("unicodeLength", unicode_object.length);
	WORD("asciiSize", unicode_object.asciiobject_size);
#endif
}

int main(void)
{
	lists();
	frames();
	objects();
	state_bits();
	debug_offsets();
	return 0;
}
