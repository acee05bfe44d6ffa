// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func py(name string) Frame {
	return Frame{Function: name, File: name + ".py", Line: 3, Language: Python}
}
func native(name string) Frame { return Frame{Function: name, Address: uint64(len(name))} }
func interpreter(name string) Frame {
	f := native(name)
	f.Interpreter = true
	return f
}

func TestViewFrames(t *testing.T) {
	mixed := []Frame{native("ext"), interpreter("call"), interpreter("eval"), py("f"), native("main")}
	startUp := []Frame{interpreter("Py_Initialize"), native("main")}
	tests := []struct {
		name  string
		view  View
		stack []Frame
		want  []string
	}{
		{"default folds the interpreter", View{}, mixed, []string{"ext", "f", "main"}},
		{"but not where no Python frame stands in", View{}, startUp, []string{"Py_Initialize", "main"}},
		{"keep the interpreter", View{KeepInterpreter: true}, mixed, []string{"ext", "call", "eval", "f", "main"}},
		{"Python only", View{DropNative: true}, mixed, []string{"f"}},
		{"Python only, interpreter kept: it is native", View{DropNative: true, KeepInterpreter: true}, mixed, []string{"f"}},
		{"Python only of a stack without", View{DropNative: true}, startUp, nil},
		{"native only keeps the interpreter", View{DropPython: true}, mixed, []string{"ext", "call", "eval", "main"}},
		{"neither", View{DropPython: true, DropNative: true}, mixed, nil},
		{"no frames", View{}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.stack)
			var got []string
			for _, f := range tt.view.Frames(tt.stack) {
				got = append(got, f.Function)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tt.stack); diff != "" {
				t.Errorf("the input changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestViewSites(t *testing.T) {
	m1, m2 := Mapping{File: "/lib/a.so", Start: 1}, Mapping{File: "/lib/a.so", Start: 1}
	at := func(m *Mapping) Frame { return Frame{Function: "f", Address: 9, Mapping: m} }
	sites := []Site{
		{ID: 5, Function: "malloc", Stack: []Frame{at(&m1), interpreter("a"), py("f")},
			InUseBytes: 10, InUseObjects: 1, AllocBytes: 20, AllocObjects: 2, OldestAge: 9 * time.Second, NewestAge: 9 * time.Second},
		{ID: 3, Function: "malloc", Stack: []Frame{at(&m2), interpreter("b"), py("f")},
			InUseBytes: 30, InUseObjects: 3, AllocBytes: 40, AllocObjects: 4, OldestAge: 7 * time.Second, NewestAge: time.Second},
		{ID: 4, Function: "malloc", Stack: []Frame{at(&m2), py("f")}, AllocBytes: 1, AllocObjects: 1},
		{ID: 6, Function: "calloc", Stack: []Frame{at(&m1), py("f")}, InUseBytes: 40, InUseObjects: 4},
		{ID: 7, Function: "malloc", Kind: KindPinned, Stack: []Frame{at(&m1), py("f")}, InUseBytes: 40, InUseObjects: 4},
		{ID: 8, Function: "malloc", Stack: []Frame{at(&m1), py("g")}, InUseBytes: math.MaxInt64, InUseObjects: 1},
		{ID: 9, Function: "malloc", Stack: []Frame{at(&m1), py("g")}, InUseBytes: math.MaxInt64, InUseObjects: 1},
	}
	shown := []Frame{at(&m1), py("f")}
	want := []Site{
		{ID: 8, Function: "malloc", Stack: []Frame{at(&m1), py("g")}, InUseBytes: math.MaxInt64, InUseObjects: 2},
		{ID: 3, Function: "malloc", Stack: shown, InUseBytes: 40, InUseObjects: 4, AllocBytes: 61, AllocObjects: 7,
			OldestAge: 9 * time.Second, NewestAge: time.Second},
		{ID: 6, Function: "calloc", Stack: shown, InUseBytes: 40, InUseObjects: 4},
		{ID: 7, Function: "malloc", Kind: KindPinned, Stack: shown, InUseBytes: 40, InUseObjects: 4},
	}
	if diff := cmp.Diff(want, View{}.Sites(sites)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	slices.Reverse(sites)
	if diff := cmp.Diff(want, View{}.Sites(sites)); diff != "" {
		t.Errorf("input in another order (-want +got):\n%s", diff)
	}
}

func TestFrameLabel(t *testing.T) {
	m := &Mapping{File: "/app/_leak.so", Start: 0x7f0000001000, Offset: 0x1000}
	tests := []struct {
		frame Frame
		want  string
	}{
		{Frame{Function: "f", Mapping: m, Address: 0x7f0000001189}, "f"},
		{Frame{Mapping: m, Address: 0x7f0000001189}, "_leak.so+0x1189"},
		{Frame{Mapping: &Mapping{}, Address: 0x7f00}, "0x7f00"},
		{Frame{Address: 0x7f00}, "0x7f00"},
		{Frame{}, "[unknown]"},
	}
	for _, tt := range tests {
		if got := tt.frame.Label(); got != tt.want {
			t.Errorf("label of %+v is %q, want %q", tt.frame, got, tt.want)
		}
	}
}
