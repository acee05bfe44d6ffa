// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"strings"
	"testing"
)

// maxFunctions is half of MAX_FUNCTIONS of bpf/lib/function.h: the programs hold
// the table twice, once for glibc's own functions.
const maxFunctions = 256

func TestHostFunctionsRows(t *testing.T) {
	table := HostFunctions()
	if len(table) > maxFunctions {
		t.Errorf("the table has %d rows, the BPF map has room for %d", len(table), maxFunctions)
	}
	seen := map[Function]bool{}
	for i := range table {
		f := &table[i]
		t.Run(f.Name, func(t *testing.T) {
			if f.Name == "" || seen[*f] {
				t.Error("name is empty or the row appears twice")
			}
			seen[*f] = true
			checkRow(t, f)
		})
	}
}

// TestHostFunctionsMoved checks that rows of one name are the same but for where
// the arguments are, and the first of them is the one of the declaration.
func TestHostFunctionsMoved(t *testing.T) {
	first := map[string]Function{}
	for i, f := range HostFunctions() {
		declared, ok := first[f.Name]
		if !ok {
			first[f.Name] = f
			if i >= len(HostFunctions())-len(moved()) {
				t.Errorf("%s has only a row with moved arguments", f.Name)
			}
			continue
		}
		f.Size, f.Count, f.Ptr, f.Out = declared.Size, declared.Count, declared.Ptr, declared.Out
		if f != declared {
			t.Errorf("rows of %s differ:\n%+v\n%+v", f.Name, declared, f)
		}
	}
}

// checkRow checks that a row is complete in the terms of the BPF programs.
func checkRow(t *testing.T, f *Function) {
	for _, arg := range []int{f.Size, f.Count, f.Ptr, f.Out} {
		if arg < NoArg || arg > 5 {
			t.Errorf("argument %d is not passed in a register", arg)
		}
	}
	if f.Role == 0 {
		t.Error("role is missing")
	}
	if want := f.Role != RoleFree; (f.Size != NoArg) != want {
		t.Errorf("size argument is %d for role %d", f.Size, f.Role)
	}
	if want := f.Role != RoleAlloc && f.Role != RoleMap; (f.Ptr != NoArg) != want {
		t.Errorf("pointer argument is %d for role %d", f.Ptr, f.Role)
	}
	if want := f.Result == ResultStatus && f.Role == RoleAlloc; (f.Out != NoArg) != want {
		t.Errorf("out argument is %d for role %d and result %d", f.Out, f.Role, f.Result)
	}
	if f.Count != NoArg && f.Size == NoArg {
		t.Error("a count without a size")
	}
	if f.Throws && !f.ReturnProbed() {
		t.Error("a free that throws")
	}
}

func TestHostFunctionsNamed(t *testing.T) {
	rows := map[string]Function{}
	for _, f := range HostFunctions() {
		if _, ok := rows[f.Name]; !ok {
			rows[f.Name] = f
		}
	}
	// Every host function of the design, and one of each family, with the
	// arguments of its manual page.
	for _, want := range []Function{
		{Name: "malloc", Role: RoleAlloc, Size: 0, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "calloc", Role: RoleAlloc, Size: 1, Count: 0, Ptr: NoArg, Out: NoArg},
		{Name: "realloc", Role: RoleRealloc, Size: 1, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "reallocarray", Role: RoleRealloc, Size: 2, Count: 1, Ptr: 0, Out: NoArg},
		{Name: "posix_memalign", Role: RoleAlloc, Result: ResultStatus, Size: 2, Count: NoArg, Ptr: NoArg, Out: 0},
		{Name: "aligned_alloc", Role: RoleAlloc, Size: 1, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "memalign", Role: RoleAlloc, Size: 1, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "valloc", Role: RoleAlloc, Size: 0, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "pvalloc", Role: RoleAlloc, Size: 0, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "free", Role: RoleFree, Size: NoArg, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "cfree", Role: RoleFree, Size: NoArg, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "free_sized", Role: RoleFree, Size: NoArg, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "free_aligned_sized", Role: RoleFree, Size: NoArg, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "mmap", Role: RoleMap, Kind: KindMmap, Result: ResultMap, Size: 1, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "mmap64", Role: RoleMap, Kind: KindMmap, Result: ResultMap, Size: 1, Count: NoArg, Ptr: NoArg, Out: NoArg},
		{Name: "mremap", Role: RoleRemap, Kind: KindMmap, Result: ResultMap, Size: 2, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "munmap", Role: RoleUnmap, Kind: KindMmap, Result: ResultStatus, Size: 1, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "_rjem_rallocx", Role: RoleRealloc, Size: 1, Count: NoArg, Ptr: 0, Out: NoArg},
		{Name: "mi_heap_recalloc_aligned_at", Role: RoleRealloc, Size: 3, Count: 2, Ptr: 1, Out: NoArg},
		{Name: "mi_heap_calloc", Role: RoleAlloc, Size: 2, Count: 1, Ptr: NoArg, Out: NoArg},
		{Name: "_ZnwmSt11align_val_t", Role: RoleAlloc, Size: 0, Count: NoArg, Ptr: NoArg, Out: NoArg, Throws: true, AllocatorOnly: true},
		{Name: "_ZdaPvmSt11align_val_t", Role: RoleFree, Size: NoArg, Count: NoArg, Ptr: 0, Out: NoArg, AllocatorOnly: true},
		{Name: "tc_newarray_nothrow", Role: RoleAlloc, Size: 0, Count: NoArg, Ptr: NoArg, Out: NoArg},
	} {
		if got := rows[want.Name]; got != want {
			t.Errorf("row of %s:\n got %+v\nwant %+v", want.Name, got, want)
		}
	}
}

// TestHostFunctionsOrder holds the rule that the standard name wins where an
// allocator exports a function under several.
func TestHostFunctionsOrder(t *testing.T) {
	var prefixed string
	table := HostFunctions()
	for _, f := range table[:len(table)-len(moved())] {
		own := false
		for _, p := range []string{"je_", "_rjem_", "tc_", "mi_"} {
			own = own || strings.HasPrefix(f.Name, p)
		}
		switch {
		case own && prefixed == "":
			prefixed = f.Name
		case !own && prefixed != "":
			t.Errorf("%s comes after %s", f.Name, prefixed)
		}
	}
}

func TestFunctionArgs(t *testing.T) {
	for name, want := range map[string]uint8{
		"malloc": 0b1, "calloc": 0b11, "reallocarray": 0b111, "posix_memalign": 0b101,
		"aligned_alloc": 0b10, "free": 0b1, "mmap": 0b111111, "mremap": 0b11111, "munmap": 0b11,
	} {
		for _, f := range HostFunctions() {
			if f.Name == name {
				if f.Args() != want {
					t.Errorf("%s reads arguments %06b, want %06b", name, f.Args(), want)
				}
				break
			}
		}
	}
}
