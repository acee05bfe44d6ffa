// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unfreed/unfreed/internal/terminal"
	"github.com/unfreed/unfreed/pkg/alloc"
)

// coverage says what was seen and what was not. Everything that can go missing
// has a line even if nothing did, so that a reader sees that it was looked at.
func (t *text) coverage() {
	c := &t.s.Coverage
	t.line("%s", t.paint.bold("Coverage"))
	t.lost(c)
	t.stacks(c)
	t.python(c)
	if c.Frames > 0 {
		t.field("symbols", fmt.Sprintf("%s of %s frames", share(c.Frames-c.Unsymbolized, c.Frames), count(c.Frames)), nil)
	}
	calls := fmt.Sprintf("%s, %s matched", plural(c.Allocations, "allocation"), plural(c.Frees, "free"))
	if c.FreesUnmatched > 0 {
		calls += fmt.Sprintf(", %s of memory from before attach", plural(c.FreesUnmatched, "free"))
	}
	if c.FailedCalls > 0 {
		calls += fmt.Sprintf(", %s failed", count(c.FailedCalls))
	}
	t.field("calls", calls, nil)
	for _, n := range c.Notes {
		t.field("note", terminal.Clean(n), nil)
	}
}

func (t *text) lost(c *alloc.Coverage) {
	if !c.Incomplete() {
		t.field("events lost", "none", nil)
		return
	}
	var n int64
	for _, x := range c.EventsLost {
		n += x.Count
	}
	t.field("events lost", count(n)+", see above: INCOMPLETE", t.paint.red)
}

func (t *text) stacks(c *alloc.Coverage) {
	all := c.StacksComplete + c.Partial()
	switch {
	case all == 0 && t.o.View.DropNative:
		t.field("stacks", "no native ones: not asked for", nil)
		return
	case all == 0:
		t.field("stacks", "none captured", nil)
		return
	}
	s := share(c.StacksComplete, all) + " complete"
	if c.Partial() > 0 {
		s += fmt.Sprintf(", %s of %s partial:", count(c.Partial()), count(all))
	} else {
		s += ", " + count(all)
	}
	t.field("stacks", s, nil)
	t.causes(c.StacksPartial)
}

func (t *text) python(c *alloc.Coverage) {
	switch {
	case t.s.Target.PythonOff != "":
		t.field("Python", "no Python frames: "+terminal.Clean(t.s.Target.PythonOff), t.paint.yellow)
	case t.s.Target.Python == "":
		return
	case len(c.PythonMissing) == 0:
		t.field("Python", "frames complete", nil)
	default:
		var n int64
		for _, x := range c.PythonMissing {
			n += x.Count
		}
		t.field("Python", fmt.Sprintf("%s without their Python frames:", plural(n, "stack")), t.paint.yellow)
		t.causes(c.PythonMissing)
	}
}

// fieldColumn is where the text of a field starts.
const fieldColumn = 15

// field renders a named line, continued below its text.
func (t *text) field(name, s string, color func(string) string) {
	lead := terminal.PadRight("  "+name, fieldColumn)
	for i, l := range terminal.Wrap(s, t.width-fieldColumn) {
		if i > 0 {
			lead = strings.Repeat(" ", fieldColumn)
		}
		if color != nil {
			l = color(l)
		}
		t.line("%s%s", lead, l)
	}
}

// causes lists causes under a field, the most frequent first.
func (t *text) causes(list []alloc.Cause) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b alloc.Cause) int { return int(min(max(b.Count-a.Count, -1), 1)) })
	for _, x := range list {
		t.fill(strings.Repeat(" ", fieldColumn+2), cause(&x), nil)
	}
}

// cause renders one cause: how often, why for people, and its stable name.
func cause(x *alloc.Cause) string {
	if x.Detail == "" {
		return count(x.Count) + " " + terminal.Clean(x.Name)
	}
	return fmt.Sprintf("%s %s [%s]", count(x.Count), terminal.Clean(x.Detail), terminal.Clean(x.Name))
}

// fill renders a text broken into lines that all begin with the same lead.
func (t *text) fill(lead, s string, color func(string) string) {
	for _, l := range terminal.Wrap(s, t.width-terminal.Columns(lead)) {
		l = lead + l
		if color != nil {
			l = color(l)
		}
		t.line("%s", l)
	}
}
