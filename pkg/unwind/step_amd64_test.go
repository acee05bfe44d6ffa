// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"runtime"
	"syscall"
	"testing"
)

// registers stops a thread, which stays stopped until the test's end of the
// trace, and returns its registers.
func registers(t *testing.T, tid int) Registers {
	t.Helper()
	// A tracer is a thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(tid); err != nil {
		t.Fatalf("attaching to thread %d: %v", tid, err)
	}
	defer func() {
		if err := syscall.PtraceDetach(tid); err != nil {
			t.Errorf("detaching from thread %d: %v", tid, err)
		}
	}()
	const wall = 0x40000000 // __WALL: the thread is not a child of this process
	if _, err := syscall.Wait4(tid, nil, wall, nil); err != nil {
		t.Fatalf("waiting for thread %d: %v", tid, err)
	}
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &r); err != nil {
		t.Fatalf("reading registers of thread %d: %v", tid, err)
	}
	return Registers{PC: r.Rip, SP: r.Rsp, FP: r.Rbp}
}
