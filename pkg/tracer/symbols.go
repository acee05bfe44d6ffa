// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/symbolize"
)

// symbolizeAll finds the functions of all addresses of the sites' stacks, in
// parallel: a library's debug information is read once, and reading several
// takes as long as the largest.
func (s *Session) symbolizeAll(sites []alloc.Site) map[place][]alloc.Frame {
	byFile := map[string][]place{}
	seen := map[place]bool{}
	for i := range sites {
		r := s.stacks.byID[sites[i].ID]
		if r == nil {
			continue
		}
		for _, p := range r.native {
			if seen[p] {
				continue
			}
			seen[p] = true
			var file string
			if p.mapping != nil {
				file = p.mapping.File
			}
			byFile[file] = append(byFile[file], p)
		}
	}
	sym := symbolize.New(s.space.openMapping, symbolize.Options{OpenDebug: s.space.openBeside})
	defer sym.Close()
	out := make(map[place][]alloc.Frame, len(seen))
	results := make(chan map[place][]alloc.Frame)
	go func() {
		var g errgroup.Group
		g.SetLimit(runtime.NumCPU())
		for _, places := range byFile {
			g.Go(func() error {
				found := make(map[place][]alloc.Frame, len(places))
				for _, p := range places {
					found[p] = sym.Frames(p.addr, p.mapping)
				}
				results <- found
				return nil
			})
		}
		_ = g.Wait()
		close(results)
	}()
	for found := range results {
		for p, f := range found {
			out[p] = f
		}
	}
	return out
}
