// SPDX-License-Identifier: Apache-2.0

package alloc

// Role says what a probed function does to memory.
type Role uint8

// The roles. The numbers are shared with bpf/lib/function.h.
const (
	RoleAlloc   Role = iota + 1 // hands out memory
	RoleFree                    // takes memory back
	RoleRealloc                 // both
	RoleMap                     // maps address space
	RoleUnmap                   // unmaps a range of it
	RoleRemap                   // moves or resizes a mapping
)

// Result says how a function reports success.
type Result uint8

// The kinds of result. The numbers are shared with bpf/lib/function.h.
const (
	ResultPointer Result = iota // the memory, NULL on failure
	ResultStatus                // 0 on success, memory through an out pointer
	ResultMap                   // the memory, (void *)-1 on failure
)

// NoArg marks an argument that a function does not have.
const NoArg = -1

// Function is a row of the table of probed functions: all that the generic BPF
// programs need to know of it. Arguments are numbered from 0.
type Function struct {
	Name   string
	Role   Role
	Kind   Kind
	Result Result
	Size   int // argument with the size in bytes, or NoArg
	Count  int // argument that multiplies Size, or NoArg
	Ptr    int // argument with the memory to free or resize, or NoArg
	Out    int // argument that points to where the memory's address is stored, or NoArg
}

// ReturnProbed reports whether the function's return has to be seen.
func (f *Function) ReturnProbed() bool { return f.Role != RoleFree }
