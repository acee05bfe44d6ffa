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

// row is what the text report shows as one site: all sites of one Python line,
// or of one native place where there is no Python. A leak reached through fifty
// stacks is one line of the program, and so is one of fifty tensors that a
// library without symbols allocates at fifty addresses.
type row struct {
	where, at string // the Python line and where it is, as far as there is one
	kind      alloc.Kind
	tally
	places []place // below the line, the one that holds the most first
}

// place is what native code allocated for a line, as far as it is shown.
type place struct {
	function string // the allocation function
	via, in  string // the function that called it and where that is; may be empty
	tally
}

// tally is what is outstanding.
type tally struct {
	bytes, objects int64
	oldest         time.Duration
}

func (t *tally) add(o tally) {
	t.bytes += o.bytes
	t.objects += o.objects
	t.oldest = max(t.oldest, o.oldest)
}

// larger orders tallies, the larger one first.
func larger(a, b tally) int {
	return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.objects, a.objects))
}

// rows groups outstanding memory by what is shown of it, the largest first.
func rows(sites []alloc.Site) []row {
	type native struct{ function, via, in string }
	type line struct {
		where, at string
		native    native // where there is no Python
		kind      alloc.Kind
	}
	type part struct {
		row    int
		native native
	}
	lines, parts := make(map[line]int), make(map[part]int)
	var list []row
	for i := range sites {
		s := &sites[i]
		if s.InUseBytes == 0 && s.InUseObjects == 0 {
			continue
		}
		r := describe(s)
		p := &r.places[0]
		n := native{p.function, p.via, p.in}
		l := line{r.where, r.at, native{}, r.kind}
		if r.where == "" {
			l.native = n
		}
		at, ok := lines[l]
		if !ok {
			at = len(list)
			lines[l], parts[part{at, n}] = at, 0
			list = append(list, r)
			continue
		}
		x := &list[at]
		x.add(r.tally)
		if j, ok := parts[part{at, n}]; ok {
			x.places[j].add(p.tally)
		} else {
			parts[part{at, n}] = len(x.places)
			x.places = append(x.places, *p)
		}
	}
	for i := range list {
		slices.SortStableFunc(list[i].places, func(a, b place) int { return larger(a.tally, b.tally) })
	}
	slices.SortStableFunc(list, func(a, b row) int { return larger(a.tally, b.tally) })
	return list
}

// describe picks what to show of a site: a row with one place.
func describe(s *alloc.Site) row {
	t := tally{s.InUseBytes, s.InUseObjects, s.OldestAge}
	p := place{function: terminal.Clean(cmp.Or(s.Function, s.Kind.String())), tally: t}
	r := row{kind: s.Kind, tally: t}
	python, native := pick(s.Stack)
	if native >= 0 {
		f := &s.Stack[native]
		p.via, p.in = terminal.Clean(bare(f.Label())), terminal.Clean(location(f))
	}
	if python >= 0 {
		f := &s.Stack[python]
		r.where, r.at = terminal.Clean(f.Label()), terminal.Clean(location(f))
	}
	r.places = []place{p}
	return r
}
