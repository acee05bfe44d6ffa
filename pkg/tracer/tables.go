// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/unwind"
)

// Room for libraries that are loaded after attach, on top of what is known
// then: the largest sets seen (CUDA's) have 1.5 million rows. In elements.
const (
	spareRows  = 4 << 20
	sparePages = 256 << 10
	spareInfos = 64 << 10
)

// placed is where a file's unwind table lies in the programs' arrays.
type placed struct {
	page, pages, row, info uint32
}

// tables owns the unwind tables: extracted once a file, in parallel, and copied
// to the programs. extract is safe for concurrent use; the rest is for one
// goroutine.
type tables struct {
	source TableSource // nil extracts

	mu     sync.Mutex
	ready  map[*file]*unwind.Table // extracted and not yet placed
	failed map[*file]error

	placed            map[*file]placed
	pages, rows, info int // used
}

func newTables(source TableSource) *tables {
	return &tables{
		source: source, ready: map[*file]*unwind.Table{}, failed: map[*file]error{},
		placed: map[*file]placed{},
	}
}

// missing returns the files of a view that have no table yet.
func (t *tables) missing(v *view) []*file {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*file
	seen := map[*file]bool{}
	for _, r := range v.regions {
		f := r.file
		if f.elf == nil || seen[f] || t.ready[f] != nil || t.failed[f] != nil {
			continue
		}
		seen[f] = true
		if _, ok := t.placed[f]; !ok {
			out = append(out, f)
		}
	}
	return out
}

// extract reads the tables of files in parallel, calling progress after each. A
// file without one is remembered as such: its frames end stacks, which is
// counted.
func (t *tables) extract(fs []*file, progress func(done, total int)) {
	var done atomic.Int64
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for _, f := range fs {
		g.Go(func() error {
			tab, err := t.extractOne(f)
			t.mu.Lock()
			if err != nil {
				t.failed[f] = err
			} else {
				t.ready[f] = tab
			}
			t.mu.Unlock()
			progress(int(done.Add(1)), len(fs))
			return nil
		})
	}
	_ = g.Wait()
}

func (t *tables) extractOne(f *file) (*unwind.Table, error) {
	switch {
	case f.image != nil:
		return unwind.ExtractAt(bytes.NewReader(f.image), int64(len(f.image)))
	case t.source == nil:
		return unwind.Extract(f.f)
	}
	return t.source.Table(f.elf.BuildID(), f.f)
}

// room returns how much space the arrays need for all that is known now and a
// reserve.
func (t *tables) room() (pages, rows, infos int) {
	pages, rows, infos = sparePages, spareRows, spareInfos
	for _, tab := range t.ready {
		pages += len(tab.Pages)
		rows += len(tab.Rows)
		infos += len(tab.Infos)
	}
	return pages, rows, infos
}

// place copies the extracted tables to the programs and lets go of them.
func (t *tables) place(o *bpfobj.Objects) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f, tab := range t.ready {
		delete(t.ready, f)
		if err := t.placeOne(o, f, tab); errors.Is(err, bpfobj.ErrFull) {
			t.failed[f] = fmt.Errorf("placing the unwind table of %q: %w", f.path, err)
		} else if err != nil {
			return fmt.Errorf("placing the unwind table of %q: %w", f.path, err)
		}
	}
	return nil
}

func (t *tables) placeOne(o *bpfobj.Objects, f *file, tab *unwind.Table) error {
	if err := o.WritePages(t.pages, tab.Pages); err != nil {
		return err
	}
	if err := o.WriteRows(t.rows, tab.Rows); err != nil {
		return err
	}
	info := func(i int) bpfobj.Info { return bpfobj.Info(tab.Infos[i]) }
	if err := o.WriteInfos(t.info, len(tab.Infos), info); err != nil {
		return err
	}
	t.placed[f] = placed{
		page: uint32(t.pages), pages: uint32(len(tab.Pages)),
		row: uint32(t.rows), info: uint32(t.info),
	}
	t.pages += len(tab.Pages)
	t.rows += len(tab.Rows)
	t.info += len(tab.Infos)
	return nil
}

// mappings returns the view as the programs take it. Where there are more than
// they have room for, those without unwind rows are left out, and then the last:
// stacks end there as in code that is not known.
func (t *tables) mappings(v *view) []bpfobj.Mapping {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]bpfobj.Mapping, 0, len(v.regions))
	for _, r := range v.regions {
		p := t.placed[r.file] // zero: a mapping without rows
		out = append(out, bpfobj.Mapping{
			Start: r.start, End: r.end, Bias: r.bias,
			PageBase: p.page, PageCount: p.pages, RowBase: p.row, InfoBase: p.info,
		})
	}
	if len(out) > bpfobj.MaxMappings {
		out = slices.DeleteFunc(out, func(m bpfobj.Mapping) bool { return m.PageCount == 0 })
	}
	return out[:min(len(out), bpfobj.MaxMappings)]
}

// failures lists the files without a table, by path.
func (t *tables) failures() map[string]error {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]error{}
	for f, err := range t.failed {
		out[f.path] = err
	}
	return out
}
