// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"io"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/bpfobj"
)

// costMeter estimates what tracing takes from the target: the time in the
// programs, by the kernel's own statistics, and the time in the traps that lead
// to them, by a calibration on this machine. Safe for concurrent use.
type costMeter struct {
	obj   *bpfobj.Objects
	stats io.Closer // keeps the kernel's statistics on; nil without CAP_SYS_ADMIN

	measured chan struct{} // closed when trap is there

	mu       sync.Mutex
	trap     time.Duration // one hit of an empty probe; 0 if it could not be measured
	at       time.Time     // of the last share
	hits     int64
	programs uint64
}

// newCostMeter begins to measure. What may not be measured is left out of the
// estimate: it is no reason not to trace.
func newCostMeter(obj *bpfobj.Objects) *costMeter {
	c := &costMeter{obj: obj, at: time.Now(), measured: make(chan struct{})}
	if stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)); err == nil {
		c.stats = stats
	}
	// Setting a probe and taking it out again waits for other CPUs.
	go func() {
		defer close(c.measured)
		trap := measureTrap()
		c.mu.Lock()
		c.trap = trap
		c.mu.Unlock()
	}()
	return c
}

// share is the part of one core that the target lost since the last call.
func (c *costMeter) share(hits int64) float64 {
	_, ns, err := c.obj.Runs()
	if err != nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(c.at)
	spent := time.Duration(ns-c.programs) + time.Duration(hits-c.hits)*c.trap
	c.at, c.hits, c.programs = now, hits, ns
	if elapsed <= 0 {
		return 0
	}
	return float64(spent) / float64(elapsed)
}

// total is the time spent in programs and in traps since the start.
func (c *costMeter) total(hits int64) (programs, traps time.Duration) {
	<-c.measured
	_, ns, err := c.obj.Runs()
	if err != nil {
		return 0, 0
	}
	return time.Duration(ns), time.Duration(hits) * c.trap
}

func (c *costMeter) close() error {
	<-c.measured
	if c.stats == nil {
		return nil
	}
	return c.stats.Close()
}
