// SPDX-License-Identifier: Apache-2.0

package python

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
)

// Target is the memory of a process: ReadAt's offset is an address. Addresses
// in the upper half of the address space never occur in user space, so the
// signed offset is no limit. *proc.Process is one.
type Target io.ReaderAt

// Names of CPython's symbols. All are exported by every build, stripped or not,
// since extension modules may need them.
const (
	symRuntime    = "_PyRuntime"
	symEval       = "_PyEval_EvalFrameDefault"
	symVersion    = "Py_Version" // since 3.11
	symGetVersion = "Py_GetVersion"
	symCodeType   = "PyCode_Type"
	symFrameType  = "PyFrame_Type"
)

// Find locates the CPython interpreter of a process and learns all that is
// needed to read its stacks.
//
// It looks for the interpreter in the files of maps by their symbols, those
// with a telling name first. open opens the ELF file behind a mapping; it is
// called at most once a file and the files stay the caller's to close. The
// target's memory is only read.
//
// Errors: ErrNoPython; ErrNotStarted; *UnsupportedError for a version or kind of
// build that is not known; *LayoutError where the target's memory does not look
// as it must. Any other error is one of open or of reading.
func Find(mem Target, maps []proc.Mapping, open func(proc.Mapping) (*elfsym.File, error)) (*Runtime, error) {
	var failed []error
	for _, c := range candidates(maps) {
		f, err := open(c.text)
		if err != nil {
			if c.named {
				failed = append(failed, fmt.Errorf("opening %q: %w", c.text.Path, err))
			}
			continue
		}
		img, err := newImage(f, c.text)
		if err != nil {
			if c.named {
				failed = append(failed, err)
			}
			continue
		}
		if img == nil {
			continue
		}
		return img.runtime(mem, maps)
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("looking for CPython: %w", errors.Join(failed...))
	}
	return nil, ErrNoPython
}

// candidate is a file that may hold an interpreter.
type candidate struct {
	text  proc.Mapping // its first executable mapping
	named bool         // its name says so
}

// candidates returns the files with code among maps: those named like an
// interpreter first, else in the order of maps, which begins with the program
// itself.
func candidates(maps []proc.Mapping) []candidate {
	type file struct{ dev, inode uint64 }
	seen := make(map[file]bool)
	var cs []candidate
	for i := range maps {
		m := &maps[i]
		if !m.Exec || !m.FileBacked() || seen[file{m.Dev, m.Inode}] {
			continue
		}
		seen[file{m.Dev, m.Inode}] = true
		cs = append(cs, candidate{text: *m, named: hasPythonName(m.Path)})
	}
	slices.SortStableFunc(cs, func(a, b candidate) int { return cmp.Compare(b2i(b.named), b2i(a.named)) })
	return cs
}

// hasPythonName reports whether a file is named like an interpreter
// ("python3.11") or its library ("libpython3.11.so.1.0"), as extension modules
// ("_heapq.cpython-311-x86_64-linux-gnu.so") are not.
func hasPythonName(file string) bool {
	return strings.HasPrefix(strings.TrimPrefix(path.Base(file), "lib"), "python")
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// image is an ELF file that holds an interpreter, mapped into the target.
type image struct {
	*elfsym.File
	text    proc.Mapping
	bias    uint64 // target address - virtual address in the file
	symbols map[string]elfsym.Symbol
}

// newImage returns nil if f holds no interpreter.
func newImage(f *elfsym.File, text proc.Mapping) (*image, error) {
	names := []string{symRuntime, symEval, symVersion, symGetVersion, symCodeType, symFrameType}
	syms, err := f.Lookup(names...)
	eval, isPython := syms[symEval]
	if !isPython || eval.Type != elf.STT_FUNC {
		if _, isPython = syms[symGetVersion]; !isPython { // a Python 2 or older
			if err != nil {
				return nil, fmt.Errorf("reading symbols of %q: %w", text.Path, err)
			}
			return nil, nil
		}
	}
	bias, ok := biasOf(f, text)
	if !ok {
		return nil, fmt.Errorf("no segment of %q is mapped at file offset %#x", text.Path, text.Offset)
	}
	return &image{File: f, text: text, bias: bias, symbols: syms}, nil
}

// biasOf returns what must be added to a virtual address in f for the address
// at which the target has it. The mapping starts at a page, the segment behind
// it perhaps within.
func biasOf(f *elfsym.File, m proc.Mapping) (uint64, bool) {
	for _, s := range f.Segments() {
		if s.Flags&elf.PF_X != 0 && s.Off < m.Offset+(m.End-m.Start) && s.Off+s.Filesz > m.Offset {
			return m.Start - m.Offset + s.Off - s.Vaddr, true
		}
	}
	return 0, false
}

// runtime learns the rest from the target's memory.
func (img *image) runtime(mem Target, maps []proc.Mapping) (*Runtime, error) {
	version, err := img.version(mem)
	if err != nil {
		return nil, &UnsupportedError{Path: img.text.Path, Reason: err.Error()}
	}
	unsupported := func(reason string) error {
		return &UnsupportedError{Version: version, Path: img.text.Path, Reason: reason}
	}
	runtimeSym, hasRuntime := img.symbols[symRuntime]
	layout, known := layouts[version.Minor]
	switch {
	case version.Major != 3 || version.Minor < minMinor:
		return nil, unsupported(fmt.Sprintf("it is older than 3.%d", minMinor))
	case version.Minor > maxMinor || !known:
		return nil, unsupported(fmt.Sprintf("it is newer than 3.%d, the newest whose structures are known", maxMinor))
	case !hasRuntime:
		return nil, unsupported("its symbol " + symRuntime + " is missing (hidden by the linker?)")
	}
	r := &Runtime{
		Version:     version,
		Path:        img.text.Path,
		Layout:      layout,
		RuntimeAddr: img.bias + runtimeSym.Value,
		LibRange:    Range{img.text.Start, img.text.End},
		Embedded:    !hasPythonName(img.text.Path),
	}
	if version.Minor >= firstDebugOffsets {
		if err := r.readDebugOffsets(mem); err != nil {
			return nil, err
		}
	}
	r.EvalRanges, err = img.evalRanges()
	if err != nil {
		return nil, unsupported(err.Error())
	}
	if err := img.validate(mem, r, maps); err != nil {
		return nil, err
	}
	return r, nil
}
