// SPDX-License-Identifier: Apache-2.0

package alloc

// Role says what a probed function does to memory.
type Role uint8

// The roles. The numbers are shared with bpf/lib/function.h.
const (
	RoleAlloc   Role = iota + 1 // hands out memory
	RoleFree                    // takes memory back
	RoleRealloc                 // both
	RoleMap                     // maps address space; arguments are those of mmap(2)
	RoleUnmap                   // unmaps a range of it; those of munmap(2)
	RoleRemap                   // moves or resizes a mapping; those of mremap(2)
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
// programs need to know of it, and where it is worth a probe. Arguments are
// numbered from 0 and are at most 6, those that the C calling conventions pass
// in registers.
type Function struct {
	Name   string // symbol that the linker knows
	Role   Role
	Kind   Kind
	Result Result
	Size   int // argument with the size in bytes, or NoArg
	Count  int // argument that multiplies Size, or NoArg
	Ptr    int // argument with the memory to free or resize, or NoArg
	Out    int // argument that points to where the memory's address is stored, or NoArg

	// Throws marks a function that leaves by a C++ exception when memory runs
	// out. A return probe must not be armed on a call that will throw: the
	// unwinder finds the kernel's trampoline in place of the return address,
	// and the target dies in std::terminate where it would have caught bad_alloc.
	Throws bool
	// AllocatorOnly marks a function that libraries other than allocators define
	// too, there on top of functions that are probed themselves: libstdc++'s
	// operator new ends in malloc.
	AllocatorOnly bool
}

// ReturnProbed reports whether the function's return has to be seen.
func (f *Function) ReturnProbed() bool { return f.Role != RoleFree }

// Args returns the arguments that a probe at the function's entry reads, as a
// set: bit n stands for argument n.
func (f *Function) Args() uint8 {
	var set uint8
	switch f.Role {
	case RoleMap: // flags and descriptor tell whether the memory is anonymous
		set = 1<<6 - 1
	case RoleRemap: // old address and size, new size, flags, new address
		set = 1<<5 - 1
	}
	for _, n := range []int{f.Size, f.Count, f.Ptr, f.Out} {
		if n != NoArg {
			set |= 1 << n
		}
	}
	return set
}
