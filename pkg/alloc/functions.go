// SPDX-License-Identifier: Apache-2.0

package alloc

import "slices"

// HostFunctions returns the table of host allocation functions. A function's
// number in it is the BPF cookie of its probes. Where two names share an
// address the earlier row gives the name, so plain C names come first. Names
// repeat at the end, in rows for probes before which arguments have moved.
//
// The table has no row for what a probe cannot count, whichever way it is
// written down: jemalloc's xallocx, which resizes in place and returns a size
// (the allocation keeps the size it had); mimalloc's mi_strdup, mi_strndup and
// mi_realpath, whose sizes are no argument, and mi_heap_destroy, which frees
// without a call per block; reallocarr of NetBSD and mimalloc, which takes its
// memory through a pointer. C++ operators outside of allocators, strdup, getline
// and everything else in a libc end in functions that have rows.
func HostFunctions() []Function {
	return slices.Concat(
		standard(""),
		mappings(),
		jemalloc(""),
		operators(),
		prefixed("je_"),       // jemalloc as its own build names it
		prefixed("_rjem_"),    // the jemalloc of Rust's tikv-jemallocator
		prefixed("je_arrow_"), // and of Apache Arrow, in pyarrow's wheels
		tcmalloc(),
		mimalloc(),
		moved(),
	)
}

// standard returns the functions of C11, C23, POSIX and glibc.
func standard(prefix string) []Function {
	return named(prefix, []Function{
		allocates("malloc", 0),
		counted(allocates("calloc", 1), 0),
		resizes("realloc", 0, 1),
		counted(resizes("reallocarray", 0, 2), 1),
		stores("posix_memalign", 0, 2),
		allocates("aligned_alloc", 1),
		allocates("memalign", 1),
		allocates("valloc", 0),
		allocates("pvalloc", 0),
		frees("free", 0),
		frees("cfree", 0),              // glibc before 2.26, and old programs since
		frees("free_sized", 0),         // C23
		frees("free_aligned_sized", 0), // C23
	})
}

// mappings returns the functions that map memory for a program. Size is the
// length asked for; of mremap it is the new one, and the old one is the argument
// before it.
func mappings() []Function {
	mapping := func(name string, role Role, result Result, ptr, size int) Function {
		return Function{Name: name, Role: role, Kind: KindMmap, Result: result, Size: size, Count: NoArg, Ptr: ptr, Out: NoArg}
	}
	return []Function{
		mapping("mmap", RoleMap, ResultMap, NoArg, 1),
		mapping("mmap64", RoleMap, ResultMap, NoArg, 1),
		mapping("mremap", RoleRemap, ResultMap, 0, 2),
		mapping("munmap", RoleUnmap, ResultStatus, 0, 1),
	}
}

// jemalloc returns what jemalloc 4 and later add to the standard functions.
func jemalloc(prefix string) []Function {
	return named(prefix, []Function{
		allocates("mallocx", 0),  // (size, flags)
		resizes("rallocx", 0, 1), // (ptr, size, flags)
		frees("dallocx", 0),      // (ptr, flags)
		frees("sdallocx", 0),     // (ptr, size, flags)
	})
}

// prefixed returns all functions of a jemalloc built with --with-jemalloc-prefix.
func prefixed(prefix string) []Function {
	return append(standard(prefix), jemalloc(prefix)...)
}

// operators returns C++'s replaceable operators new and delete as the Itanium
// ABI mangles them on LP64: n and d for the object, a for the array forms, m for
// std::size_t. Every allocator for C++ programs replaces them by code of its own.
func operators() []Function {
	const align, nothrow = "St11align_val_t", "RKSt9nothrow_t"
	var t []Function
	for _, op := range []string{"_Znwm", "_Znam"} {
		t = append(t,
			throws(allocates(op, 0)),
			throws(allocates(op+align, 0)),
			allocates(op+nothrow, 0),
			allocates(op+align+nothrow, 0),
		)
	}
	for _, op := range []string{"_ZdlPv", "_ZdaPv"} {
		for _, form := range []string{"", "m", align, "m" + align, nothrow, align + nothrow} {
			t = append(t, frees(op+form, 0))
		}
	}
	for i := range t {
		t[i].AllocatorOnly = true
	}
	return t
}

// tcmalloc returns the names under which gperftools exports its functions
// beside the standard ones (gperftools/tcmalloc.h).
func tcmalloc() []Function {
	t := []Function{
		allocates("malloc", 0),
		counted(allocates("calloc", 1), 0),
		resizes("realloc", 0, 1),
		stores("posix_memalign", 0, 2),
		allocates("memalign", 1),
		allocates("valloc", 0),
		allocates("pvalloc", 0),
		allocates("malloc_skip_new_handler", 0),
		frees("free", 0),
		frees("cfree", 0),
		frees("free_sized", 0),
	}
	for _, op := range []string{"new", "newarray"} {
		t = append(t,
			throws(allocates(op, 0)),
			throws(allocates(op+"_aligned", 0)),
			allocates(op+"_nothrow", 0),
			allocates(op+"_aligned_nothrow", 0),
		)
	}
	for _, op := range []string{"delete", "deletearray"} {
		for _, form := range []string{"", "_sized", "_aligned", "_sized_aligned", "_nothrow", "_aligned_nothrow"} {
			t = append(t, frees(op+form, 0))
		}
	}
	return named("tc_", t)
}

// mimalloc returns the functions of mimalloc.h (versions 1.6 to 3.0), which
// exist beside the standard ones where those are overridden.
func mimalloc() []Function {
	// These exist twice: plain, and as mi_heap_* with the heap in front.
	both := []Function{
		allocates("malloc", 0),
		allocates("malloc_small", 0),
		allocates("zalloc", 0),
		allocates("zalloc_small", 0),
		counted(allocates("calloc", 1), 0),
		counted(allocates("mallocn", 1), 0),
		allocates("malloc_aligned", 0),
		allocates("malloc_aligned_at", 0),
		allocates("zalloc_aligned", 0),
		allocates("zalloc_aligned_at", 0),
		counted(allocates("calloc_aligned", 1), 0),
		counted(allocates("calloc_aligned_at", 1), 0),
		resizes("realloc", 0, 1),
		counted(resizes("reallocn", 0, 2), 1),
		resizes("reallocf", 0, 1),
		resizes("realloc_aligned", 0, 1),
		resizes("realloc_aligned_at", 0, 1),
		resizes("rezalloc", 0, 1),
		counted(resizes("recalloc", 0, 2), 1),
		resizes("rezalloc_aligned", 0, 1),
		resizes("rezalloc_aligned_at", 0, 1),
		counted(resizes("recalloc_aligned", 0, 2), 1),
		counted(resizes("recalloc_aligned_at", 0, 2), 1),
	}
	only := []Function{
		resizes("expand", 0, 1), // in place or not at all
		counted(resizes("reallocarray", 0, 2), 1),
		counted(resizes("aligned_recalloc", 0, 2), 1),
		counted(resizes("aligned_offset_recalloc", 0, 2), 1),
		stores("posix_memalign", 0, 2),
		allocates("memalign", 1),
		allocates("aligned_alloc", 1),
		allocates("valloc", 0),
		allocates("pvalloc", 0),
		throws(allocates("new", 0)),
		throws(allocates("new_aligned", 0)),
		throws(counted(allocates("new_n", 1), 0)),
		throws(resizes("new_realloc", 0, 1)),
		throws(counted(resizes("new_reallocn", 0, 2), 1)),
		throws(allocates("heap_alloc_new", 1)),
		throws(counted(allocates("heap_alloc_new_n", 2), 1)),
		allocates("new_nothrow", 0),
		allocates("new_aligned_nothrow", 0),
		frees("free", 0),
		frees("cfree", 0),
		frees("free_size", 0),
		frees("free_size_aligned", 0),
		frees("free_aligned", 0),
	}
	return slices.Concat(named("mi_", both), named("mi_heap_", shifted(both)), named("mi_", only))
}

// moved returns variants of functions whose arguments are in other registers at
// the instruction that is cheapest to probe. Where thread-local state goes in
// front of them, as in mimalloc, compilers shift them by one; the memory to free
// is kept in any register.
func moved() []Function {
	t := shifted([]Function{
		allocates("malloc", 0),
		counted(allocates("calloc", 1), 0),
		resizes("realloc", 0, 1),
		throws(allocates("_Znwm", 0)),
		allocates("mi_malloc", 0),
		allocates("mi_malloc_small", 0),
		allocates("mi_zalloc", 0),
		allocates("mi_zalloc_small", 0),
		counted(allocates("mi_calloc", 1), 0),
		resizes("mi_realloc", 0, 1),
		throws(allocates("mi_new", 0)),
		allocates("mi_new_nothrow", 0),
	})
	for i := range t {
		t[i].AllocatorOnly = t[i].Name == "_Znwm"
	}
	for ptr := 1; ptr < 6; ptr++ {
		t = append(t, frees("free", ptr), frees("mi_free", ptr))
	}
	return t
}

// allocates describes name(..., size, ...), which returns memory.
func allocates(name string, size int) Function {
	return Function{Name: name, Role: RoleAlloc, Size: size, Count: NoArg, Ptr: NoArg, Out: NoArg}
}

// stores describes name(&memory, ..., size), which returns a status.
func stores(name string, out, size int) Function {
	return Function{Name: name, Role: RoleAlloc, Result: ResultStatus, Size: size, Count: NoArg, Ptr: NoArg, Out: out}
}

// resizes describes name(ptr, ..., size, ...), which returns memory.
func resizes(name string, ptr, size int) Function {
	return Function{Name: name, Role: RoleRealloc, Size: size, Count: NoArg, Ptr: ptr, Out: NoArg}
}

// frees describes name(ptr, ...).
func frees(name string, ptr int) Function {
	return Function{Name: name, Role: RoleFree, Size: NoArg, Count: NoArg, Ptr: ptr, Out: NoArg}
}

// counted adds an argument by which the size is multiplied.
func counted(f Function, count int) Function {
	f.Count = count
	return f
}

// throws marks a function that throws when memory runs out.
func throws(f Function) Function {
	f.Throws = true
	return f
}

// named returns the functions with a prefix before each name.
func named(prefix string, t []Function) []Function {
	t = slices.Clone(t)
	for i := range t {
		t[i].Name = prefix + t[i].Name
	}
	return t
}

// shifted returns the functions with one more argument in front.
func shifted(t []Function) []Function {
	t = slices.Clone(t)
	for i := range t {
		for _, arg := range []*int{&t[i].Size, &t[i].Count, &t[i].Ptr, &t[i].Out} {
			if *arg != NoArg {
				*arg++
			}
		}
	}
	return t
}
