// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"strings"
	"time"

	"github.com/unfreed/unfreed/internal/terminal"
	"github.com/unfreed/unfreed/pkg/alloc"
)

// IncompleteComment begins the comment of a profile whose numbers may be wrong,
// which says why. Other profiles have no such comment.
const IncompleteComment = "INCOMPLETE:"

// comments says what a reader must know of an observation. pprof shows those
// that do not start with "#" above every view and all of them by -comments, so
// only the process and what makes numbers wrong come without.
func comments(s *alloc.Snapshot, kinds []alloc.Kind) []string {
	var c commenter
	c.show("Process: %s (PID %d)", shorten(strings.Join(s.Target.Command, " ")), s.Target.PID)
	if s.Coverage.Incomplete() {
		c.show("%s numbers may be wrong: %s", IncompleteComment, causes(s.Coverage.EventsLost))
	}
	if s.Target.PythonOff != "" {
		c.show("No Python frames: %s", s.Target.PythonOff)
	}
	c.note("unfreed %s", s.Version)
	c.note("executable: %s", s.Target.Exe)
	if s.Target.Python != "" {
		c.note("python: %s", s.Target.Python)
	}
	c.note("traced: %s from %s, ended: %s", s.Duration, s.Start.UTC().Format(time.RFC3339), s.Ended)
	if s.SampleBytes > 1 {
		c.note("sampled: one allocation every %d bytes on average; values are unbiased estimates", s.SampleBytes)
	} else {
		c.note("exact: every allocation since attach was recorded")
	}
	if s.MinAge > 0 {
		c.note("inuse values hold only allocations at least %s old", s.MinAge)
	}
	for _, k := range kinds {
		bytes, objects := s.InUse(k)
		c.note("outstanding %s: %d bytes in %d allocations", k, bytes, objects)
	}
	c.note("before attach: RSS %d bytes, at the end %d; %d frees since then matched nothing",
		s.Before.RSS, s.Before.RSSAtEnd, s.Before.FreesUnmatched)
	c.coverage(&s.Coverage)
	return c.lines
}

// causes joins what went missing and why.
func causes(list []alloc.Cause) string {
	var parts []string
	for _, x := range list {
		part := fmt.Sprintf("%d %s", x.Count, x.Name)
		if x.Detail != "" {
			part += " (" + x.Detail + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// maxCommand is how many characters of the command line pprof shows above every
// view; some programs have kilobytes.
const maxCommand = 120

func shorten(s string) string {
	if r := []rune(s); len(r) > maxCommand {
		return string(r[:maxCommand-1]) + "…"
	}
	return s
}

// commenter collects comments.
type commenter struct{ lines []string }

func (c *commenter) show(format string, args ...any) {
	c.lines = append(c.lines, terminal.Clean(fmt.Sprintf(format, args...)))
}

func (c *commenter) note(format string, args ...any) { c.show("# "+format, args...) }

func (c *commenter) coverage(v *alloc.Coverage) {
	c.note("coverage: %d allocations, %d frees, %d failed calls", v.Allocations, v.Frees, v.FailedCalls)
	c.note("coverage: %d stacks complete, %d partial", v.StacksComplete, v.Partial())
	for _, x := range v.StacksPartial {
		c.note("coverage: partial stacks: %s", causes([]alloc.Cause{x}))
	}
	for _, x := range v.PythonMissing {
		c.note("coverage: without Python frames: %s", causes([]alloc.Cause{x}))
	}
	for _, x := range v.EventsLost {
		c.note("coverage: lost: %s", causes([]alloc.Cause{x}))
	}
	if !v.Incomplete() {
		c.note("coverage: nothing lost")
	}
	c.note("coverage: %d of %d frames without symbol", v.Unsymbolized, v.Frames)
	for _, n := range v.Notes {
		c.note("%s", n)
	}
}
