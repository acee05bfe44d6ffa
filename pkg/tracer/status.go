// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// Status is a session at one moment, cheap enough to ask for every second.
type Status struct {
	Elapsed     time.Duration
	Bytes       int64 // outstanding heap memory since attach; in sampled mode of the samples
	Objects     int64
	Allocations int64         // captured since attach
	Frees       int64         // matched
	Hits        int64         // of probes
	CostShare   float64       // estimated share of one core taken from the target just now
	Lost        []alloc.Cause // what makes numbers wrong
	Partial     int64         // stacks that do not reach the thread's start
	Complete    int64
}

// Status reads the kernel's counters.
func (s *Session) Status() (Status, error) {
	c, err := s.obj.Counters()
	if err != nil {
		return Status{}, err
	}
	st := Status{
		Elapsed: time.Since(s.start),
		Bytes:   c.AllocatedBytes - c.FreedBytes, Objects: c.Allocations - c.Frees - c.Replaced,
		Allocations: c.Allocations, Frees: c.Frees, Hits: c.Hits,
		Lost: append(c.Lost, s.trouble.all()...), Complete: c.Complete,
	}
	for _, p := range c.Partial {
		st.Partial += p.Count
	}
	st.CostShare = s.cost.share(c.Hits)
	return st, nil
}
