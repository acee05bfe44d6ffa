// SPDX-License-Identifier: Apache-2.0

package report

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// pick returns the indices of the two frames that matter in a stack: the Python
// line to look at and the native function that allocated for it; -1 for none.
//
// The Python frame is the one nearest to the allocation that belongs to the
// program, not to the standard library or an installed package; if there is
// none, simply the nearest. The native frame is the nearest one that is neither
// an allocator nor the interpreter. It must have been called by the Python
// frame: beyond that, main() or a thread's start explains nothing. Where that
// leaves none, Python itself allocated. In a stack without Python frames the
// interpreter is native code like any other, and some frame matters in any case.
func pick(stack []alloc.Frame) (python, native int) {
	python = -1
	for i := range stack {
		if stack[i].Language != alloc.Python {
			continue
		}
		if python < 0 {
			python = i
		}
		if !installed(stack[i].File) {
			python = i
			break
		}
	}
	callees := stack
	if python >= 0 {
		callees = stack[:python]
	}
	isNative := func(f alloc.Frame) bool { return f.Language == alloc.Native }
	native = slices.IndexFunc(callees, func(f alloc.Frame) bool {
		return isNative(f) && !(f.Interpreter && python >= 0) && !allocator(&f)
	})
	if native < 0 && python < 0 {
		native = slices.IndexFunc(stack, isNative)
	}
	return python, native
}

// location says where a frame is: file:line, or the file it was loaded from.
func location(f *alloc.Frame) string {
	switch {
	case f.File != "" && f.Line > 0:
		return f.File + ":" + strconv.Itoa(f.Line)
	case f.File != "":
		return f.File
	case f.Function != "" && f.Mapping != nil && f.Mapping.File != "":
		return path.Base(f.Mapping.File)
	}
	return "" // Label has it all
}

// installedRx matches the files of the standard library and of installed
// packages: lib/python3.11/..., lib64/python3/..., python311.zip/....
var installedRx = regexp.MustCompile(`/(site|dist)-packages/|(^|/)(lib(64)?/python\d+(\.\d+)?t?|python\d+\.zip)/`)

// installed reports whether a Python file is not the program's own.
func installed(file string) bool {
	return strings.HasPrefix(file, "<frozen ") || installedRx.MatchString(file)
}

// allocatorFileRx matches the files whose functions hand out memory on behalf
// of their callers: C and C++ runtimes, allocator libraries, the loader.
var allocatorFileRx = regexp.MustCompile(
	`^(lib(c|stdc\+\+|c\+\+|c\+\+abi|gcc_s|pthread|jemalloc|tcmalloc|tcmalloc_minimal|mimalloc)|ld|libc\.musl|ld-musl|ld-linux)([-._].*)?\.so(\.|$)`)

// allocatorPrefixes begin the names of functions that do so wherever they are
// linked into: templates of the C++ and Rust libraries are instantiated in
// their user's file, and torch and NumPy have a function through which all of
// their memory comes.
var allocatorPrefixes = []string{
	"operator new", "std::", "__gnu_cxx::",
	"__rust_alloc", "__rust_realloc", "__rdl_", "__rg_", "__rustc::", "alloc::alloc::", "alloc::raw_vec::", "<alloc::alloc::",
	"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign", "mmap", "mremap",
	"c10::alloc_cpu", "c10::DefaultCPUAllocator", "c10::(anonymous namespace)::DefaultCPUAllocator",
	"PyMem_", "_PyMem_", "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc",
	"_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc", "_PyObject_Arena", "pymalloc_alloc", "new_arena", "allocate_from_new_pool",
	"PyDataMem_", "npy_alloc_cache", "_npy_alloc_cache",
}

// allocator reports whether a frame is part of handing out memory.
func allocator(f *alloc.Frame) bool {
	if f.Mapping != nil && allocatorFileRx.MatchString(path.Base(f.Mapping.File)) {
		return true
	}
	if strings.Contains(f.Function, "operator new") {
		return true // also a class's own
	}
	name := unqualify(f.Function)
	return slices.ContainsFunc(allocatorPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// unqualify strips the return type that a demangled template instance has in
// front of its name: "void std::vector<int>::f<int>(int)" is
// "std::vector<int>::f<int>(int)".
func unqualify(name string) string {
	start, _ := nameOf(name)
	return name[start:]
}

// bare strips return type and parameters of a demangled name, which take most
// of its length: "at::empty(c10::ArrayRef<long>)" is "at::empty". What does not
// look like one stays as it is.
func bare(name string) string {
	start, end := nameOf(name)
	return name[start:end]
}

// nameOf returns where the name proper starts and ends in a demangled name: the
// last word in front of the parameters, both looked for outside of brackets.
func nameOf(name string) (start, end int) {
	depth := 0
	for i, r := range name {
		switch r {
		case '<', '[', '{':
			depth++
		case '>', ']', '}':
			depth--
		case '(':
			if depth == 0 && i > start && !strings.HasPrefix(name[i:], "(anonymous") && !strings.HasSuffix(name[:i], "operator") {
				return start, i
			}
			depth++
		case ')':
			depth--
		case ' ':
			if depth == 0 && !strings.HasSuffix(name[:i], "operator") {
				start = i + 1
			}
		}
	}
	return start, len(name)
}
