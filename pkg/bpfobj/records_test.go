// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func bytesOf[T any](v *T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))...)
}

// stackRecord is a record of two native frames and one Python frame.
func stackRecord() []byte {
	h := allocStackRecord{
		Type: uint32(allocRecordTypeRECORD_STACK), Function: 3, Site: 9, NativeCount: 2, PythonCount: 1,
		NativeStatus: 1, PythonStatus: 1, MapsGeneration: 4, Tid: 7, Size: 11,
	}
	native := [2]uint64{0x1000, 0x2000}
	python := allocPythonFrame{Code: 5, Position: -2, Owner: 3, Flags: 1}
	return append(append(bytesOf(&h), bytesOf(&native)...), bytesOf(&python)...)
}

func TestDecodeStack(t *testing.T) {
	got, err := decode(stackRecord())
	if err != nil {
		t.Fatal(err)
	}
	want := &Stack{
		Site: 9, Function: 3, Native: []uint64{0x1000, 0x2000},
		Python:       []PythonFrame{{Code: 5, Position: -2, Owner: 3, Entry: true}},
		NativeStatus: 1, PythonStatus: 1, Generation: 4, TID: 7, Size: 11,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stack differs (-want +got):\n%s", diff)
	}
	if _, err := decode(stackRecord()[:60]); !errors.Is(err, ErrRecord) {
		t.Errorf("of a record cut short: %v, want ErrRecord", err)
	}
}

// The ring's contents come from our own programs, but a record that is not what
// it says must be an error and not a crash in the middle of a trace.
func FuzzDecode(f *testing.F) {
	f.Add(stackRecord())
	for kind := range uint32(10) {
		f.Add(append(bytesOf(&kind), make([]byte, 80)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if (r == nil) != (err != nil) {
			t.Errorf("decode = %v, %v", r, err)
		}
	})
}
