// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/unfreed/unfreed/internal/terminal"
)

// Status is the state of a running observation.
type Status struct {
	Elapsed       time.Duration
	InUseBytes    int64   // outstanding since attach
	InUseObjects  int64   // likewise
	Estimated     bool    // these two are estimates of sampled mode
	AllocsPerSec  float64 // allocation calls captured a second, lately
	Allocations   int64   // likewise since attach
	CoreShare     float64 // estimated time taken from the target, 1 = all of one core
	Lost          int64   // events lost so far, for any reason
	StacksPartial int64   // stacks not complete so far
}

// Line renders the status in at most width columns; 0 is any. Where room is
// short, what matters least goes first. Losses never do.
func (s Status) Line(width int) string {
	about := ""
	if s.Estimated {
		about = "~"
	}
	elapsed := span(s.Elapsed)
	if s.Elapsed < time.Minute { // whole seconds, so that the line does not jump
		elapsed = fmt.Sprintf("%ds", s.Elapsed/time.Second)
	}
	// In the order of the line, each with the order in which it goes.
	fields := []struct {
		text string
		goes int
	}{
		{elapsed, 4},
		{fmt.Sprintf("outstanding %s%s in %s%s", about, Bytes(s.InUseBytes), about, count(s.InUseObjects)), 5},
		{count(int64(math.Round(s.AllocsPerSec))) + " allocs/s", 3},
		{"costs " + corePercent(s.CoreShare) + " of a core", 2},
		{"no losses", 1},
	}
	if s.StacksPartial > 0 {
		fields[4].text = count(s.StacksPartial) + " stacks partial"
	}
	if s.Lost > 0 {
		fields[4].text, fields[4].goes = "LOST "+count(s.Lost), 6
	}
	for gone := 0; ; gone++ {
		var shown []string
		for _, f := range fields {
			if f.goes > gone {
				shown = append(shown, f.text)
			}
		}
		line := strings.Join(shown, "  ")
		if width <= 0 || terminal.Columns(line) <= width {
			return line
		}
		if len(shown) == 1 {
			return terminal.Head(line, width)
		}
	}
}

// corePercent renders a share of one core.
func corePercent(x float64) string {
	p := 100 * x
	switch {
	case p <= 0:
		return "0%"
	case p < 0.1:
		return "<0.1%"
	case p < 10:
		return fmt.Sprintf("%.1f%%", p)
	}
	return fmt.Sprintf("%.0f%%", p)
}
