// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
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
	stats io.Closer     // keeps the kernel's statistics on
	trap  time.Duration // one hit of an empty probe; 0 if it could not be measured

	mu       sync.Mutex
	at       time.Time // of the last share
	hits     int64
	programs uint64
}

func newCostMeter(obj *bpfobj.Objects) (*costMeter, error) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, fmt.Errorf("enabling the run-time statistics of BPF programs: %w", err)
	}
	c := &costMeter{obj: obj, stats: stats, at: time.Now()}
	c.trap = measureTrap()
	return c, nil
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
	_, ns, err := c.obj.Runs()
	if err != nil {
		return 0, 0
	}
	return time.Duration(ns), time.Duration(hits) * c.trap
}

func (c *costMeter) close() error { return c.stats.Close() }
