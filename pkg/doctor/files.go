// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/unwind"
)

// fileID names a file by what the kernel says of its mapping.
type fileID struct{ dev, inode uint64 }

// image is a mapped file.
type image struct {
	path string
	file *os.File
	elf  *elfsym.File
	err  error // why it could not be opened, or is not ELF
}

// images are the files of a target, each opened once. For one goroutine; close
// frees them.
type images struct {
	p    *proc.Process
	byID map[fileID]*image
}

func newImages(p *proc.Process) *images { return &images{p, map[fileID]*image{}} }

func (x *images) close() {
	for _, i := range x.byID {
		if i.file != nil {
			i.file.Close()
		}
	}
}

func (x *images) get(m proc.Mapping) *image {
	id := fileID{m.Dev, m.Inode}
	if i, ok := x.byID[id]; ok {
		return i
	}
	i := &image{path: m.Path}
	if i.file, i.err = x.p.OpenMapping(m); i.err == nil {
		var st os.FileInfo
		if st, i.err = i.file.Stat(); i.err == nil {
			i.elf, i.err = elfsym.Open(i.file, st.Size())
		}
	}
	x.byID[id] = i
	return i
}

// open is get for those who want the ELF file or an error.
func (x *images) open(m proc.Mapping) (*elfsym.File, error) {
	i := x.get(m)
	return i.elf, i.err
}

// executable returns one executable mapping of each file.
func executable(maps []proc.Mapping) []proc.Mapping {
	var list []proc.Mapping
	seen := map[fileID]bool{}
	for _, m := range maps {
		if id := (fileID{m.Dev, m.Inode}); m.Exec && m.FileBacked() && !seen[id] {
			seen[id] = true
			list = append(list, m)
		}
	}
	return list
}

// readable says whether the files with the target's code can be read.
func (x *images) readable(code []proc.Mapping) Finding {
	f := Finding{Area: Target, ID: "files", Name: "mapped files", State: OK}
	var gone int
	var bad []string
	for _, m := range code {
		switch i := x.get(m); {
		case i.err != nil && !errors.Is(i.err, elfsym.ErrNotELF):
			bad = append(bad, fmt.Sprintf("%s: %v", path.Base(m.Path), cause(i.err)))
		case m.Deleted:
			gone++
		}
	}
	f.Detail = plural(len(code), "file") + " with code"
	if gone > 0 {
		f.Detail += fmt.Sprintf(", %d of them deleted or replaced since, and read all the same", gone)
	}
	if len(bad) > 0 {
		f.State = Degraded
		f.Reason = plural(len(bad), "file") + " cannot be read, so that stacks end there: " + some(bad)
		f.Remedy = "hold CAP_CHECKPOINT_RESTORE, or restart the program if its files were updated"
	}
	return f
}

// cause returns the sentence that tells most of an error about a file.
func cause(err error) error {
	for _, known := range []error{proc.ErrReplaced, proc.ErrNotRegular, os.ErrPermission} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}

// unwindable extracts the unwind tables, as attach would.
func (x *images) unwindable(ctx context.Context, code []proc.Mapping) Finding {
	f := Finding{Area: Target, ID: "unwind", Name: "unwind tables", State: OK}
	var mu sync.Mutex
	var files, rows int
	var without []string
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for _, m := range code {
		i := x.get(m)
		if i.elf == nil {
			continue // told by another finding, or no ELF file
		}
		group.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			table, err := unwind.Extract(i.file)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, unwind.ErrNoRows) && !hasCode(i.elf) {
				return nil // no stack passes through it
			}
			if err != nil {
				without = append(without, path.Base(i.path)+": "+unwindCause(err))
				return nil
			}
			files++
			rows += len(table.Rows)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		f.State, f.Reason = Unknown, err.Error()
		return f
	}
	f.Detail = fmt.Sprintf("%s of %s", plural(rows, "row"), plural(files, "file"))
	if len(without) > 0 {
		slices.Sort(without)
		f.State = Degraded
		f.Reason = "none in " + plural(len(without), "file") + "; a stack that passes through one ends there: " + some(without)
	}
	return f
}

// maxStartupCode bounds the code that the C compiler links into every library
// to run constructors and destructors, which has no unwind tables: 185 bytes for
// x86_64.
const maxStartupCode = 1 << 10

// hasCode reports whether a file has functions of its own. Libraries of data and
// those that only list others have none.
func hasCode(f *elfsym.File) bool {
	symbols, err := f.DynSymbols()
	if err != nil || slices.ContainsFunc(symbols, func(s elfsym.Symbol) bool {
		return s.Type != elf.STT_OBJECT && s.Name != "_init" && s.Name != "_fini"
	}) {
		return true
	}
	var size uint64
	if text, err := f.SectionReader(".text"); err == nil {
		size = uint64(text.Size())
	} else { // without sections
		for _, s := range f.Segments() {
			if s.Flags&elf.PF_X != 0 {
				size += s.Memsz
			}
		}
	}
	return size > maxStartupCode
}

func unwindCause(err error) string {
	for _, known := range []error{unwind.ErrNoRows, unwind.ErrCorrupt, unwind.ErrTooLarge, unwind.ErrUnsupported} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// some lists the first few.
func some(list []string) string {
	const show = 3
	if len(list) <= show {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:show], ", "), len(list)-show)
}

// byPath sorts for a report that does not depend on where files are mapped.
func byPath(a, b string) int {
	return cmp.Or(cmp.Compare(path.Base(a), path.Base(b)), cmp.Compare(a, b))
}
