// SPDX-License-Identifier: Apache-2.0

// Package report renders a finished observation for people (Text) and for
// programs (JSON), and the state of a running one as a line (Status).
//
// Renderers are pure functions from values to strings: no clock, no terminal,
// no file. Width and colour are options that the command line sets. Whatever
// the target chose itself (names, paths, its command line) is stripped of
// control characters before it reaches a terminal.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/unfreed/unfreed/internal/terminal"
	"github.com/unfreed/unfreed/pkg/alloc"
)

// row is what the text report shows as one site: all sites that would read the
// same. A leak reached through fifty stacks is one line of the program.
type row struct {
	where, via string // the Python line and the native function, as far as there are any
	at, in     string // where those two are
	function   string // the allocation function
	kind       alloc.Kind

	bytes, objects int64
	oldest         time.Duration
}

// rows groups outstanding memory by what is shown of it, the largest first.
func rows(sites []alloc.Site) []row {
	type key struct {
		where, via, at, in, function string
		kind                         alloc.Kind
	}
	index := make(map[key]int)
	var list []row
	for i := range sites {
		s := &sites[i]
		if s.InUseBytes == 0 && s.InUseObjects == 0 {
			continue
		}
		r := describe(s)
		k := key{r.where, r.via, r.at, r.in, r.function, r.kind}
		at, ok := index[k]
		if !ok {
			at = len(list)
			index[k] = at
			list = append(list, r)
		}
		x := &list[at]
		x.bytes += s.InUseBytes
		x.objects += s.InUseObjects
		x.oldest = max(x.oldest, s.OldestAge)
	}
	slices.SortStableFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.objects, a.objects))
	})
	return list
}

// describe picks what to show of a site.
func describe(s *alloc.Site) row {
	r := row{function: terminal.Clean(cmp.Or(s.Function, s.Kind.String())), kind: s.Kind}
	python, native := pick(s.Stack)
	if native >= 0 {
		f := &s.Stack[native]
		r.via, r.in = terminal.Clean(bare(f.Label())), terminal.Clean(place(f))
	}
	if python >= 0 {
		f := &s.Stack[python]
		r.where, r.at = terminal.Clean(f.Label()), terminal.Clean(place(f))
	}
	return r
}
