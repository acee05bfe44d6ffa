// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"time"

	"github.com/unfreed/unfreed/pkg/proc"
)

// lookEvery bounds how often the mappings are read again. A program that maps
// and unmaps libraries in a loop gets stale stacks between two looks, which are
// counted as partial.
const lookEvery = 100 * time.Millisecond

// follow keeps the programs' picture of the address space up to date until ctx
// is done: new libraries get unwind tables and probes.
func (s *Session) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.refresh:
		}
		err := s.update()
		// A target that is gone, or has become another program, ends the session.
		if err != nil && ctx.Err() == nil && !errors.Is(err, proc.ErrExited) {
			s.trouble.add("mappings_stale", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

func (s *Session) update() error {
	v, err := s.space.scan()
	if err != nil {
		return err
	}
	if any, _ := v.changed(s.space.now()); !any {
		return nil
	}
	if !s.o.NoNative {
		s.tabs.extract(s.tabs.missing(v), func(int, int) {})
	}
	if err := s.show(v); err != nil {
		return err
	}
	p, err := s.plan(v)
	if err != nil {
		return err
	}
	_, err = s.probe(v, p)
	return err
}

// debugState is where a loader stops after it has changed its list of
// libraries, for debuggers (glibc elf/dl-debug.c, musl ldso/dynlink.c).
const debugState = "_dl_debug_state"

// watchLoaders puts a probe on each dynamic loader of a view, so that libraries
// are known before their code runs. Without it they are found by their first
// incomplete stack.
func (s *Session) watchLoaders(v *view) {
	for _, r := range v.regions {
		f := r.file
		if f.f == nil || f.elf == nil || s.loaderSet[f] || !isLoader(f.path) {
			continue
		}
		s.loaderSet[f] = true
		syms, err := f.elf.Lookup(debugState)
		if err != nil {
			continue
		}
		sym, ok := syms[debugState]
		if !ok {
			continue
		}
		off, ok := f.elf.VaddrToOffset(sym.Value)
		if !ok {
			continue
		}
		if err := s.watch(f, off); err != nil {
			s.trouble.add("loader_not_watched", err.Error())
		}
	}
}
