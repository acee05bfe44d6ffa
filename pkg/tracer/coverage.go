// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/ledger"
)

// complete moves allocations whose stacks were completed afterwards from the
// partial ones to the others.
func complete(c *bpfobj.Counters, n int64) {
	if n == 0 {
		return
	}
	c.Complete += n
	for i := range c.Partial {
		if c.Partial[i].Name == "unknown_mapping" {
			c.Partial[i].Count -= n
		}
	}
	c.Partial = slices.DeleteFunc(c.Partial, func(x alloc.Cause) bool { return x.Count <= 0 })
}

// coverage states what was seen and what was missed.
func (s *Session) coverage(c *bpfobj.Counters, wrong []ledger.Discrepancy) alloc.Coverage {
	cov := alloc.Coverage{
		Allocations: c.Allocations, Frees: c.Frees,
		StacksComplete: c.Complete, StacksPartial: c.Partial, PythonMissing: c.PythonMissing,
		FreesUnmatched: c.FreesUnmatched, FailedCalls: c.FailedCalls,
		EventsLost: append(c.Lost, s.trouble.all()...),
	}
	if len(wrong) > 0 {
		var objects int64
		for _, d := range wrong {
			objects += max(d.Objects, -d.Objects)
		}
		cov.EventsLost = append(cov.EventsLost, alloc.Cause{
			Name: "books_differ", Count: int64(len(wrong)),
			Detail: fmt.Sprintf("sites whose counters and outstanding allocations differ, by %d objects", objects),
		})
	}
	cov.EventsLost = append(cov.EventsLost, unprobed(s.skips)...)
	st := s.books.Stats()
	if st.Dropped > 0 {
		cov.EventsLost = append(cov.EventsLost, alloc.Cause{
			Name: "mappings_dropped", Count: int64(st.Dropped), Detail: "mappings not tracked: too many at once",
		})
	}
	if st.Invalid > 0 {
		cov.EventsLost = append(cov.EventsLost, alloc.Cause{
			Name: "mapping_events_invalid", Count: int64(st.Invalid), Detail: "mapping calls whose ranges make no sense",
		})
	}
	if st.RemapsUntracked > 0 {
		cov.Notes = append(cov.Notes, fmt.Sprintf("%d mremap calls on mappings from before attach or of files, to %d bytes, are in no site", st.RemapsUntracked, st.RemapBytesUntracked))
	}
	if st.Reconciled > 0 {
		cov.Notes = append(cov.Notes, fmt.Sprintf("%d bytes were unmapped by calls that no probe sees; they count as freed", st.Reconciled))
	}
	if c.Replaced > 0 {
		cov.Notes = append(cov.Notes, fmt.Sprintf("%d addresses were handed out again though no free of them was seen; they count as freed", c.Replaced))
	}
	if c.Forks > 0 {
		cov.Notes = append(cov.Notes, fmt.Sprintf("the target forked (%d in all); children are not traced, though they pay for the probes until they exec, and what a vforked one allocates in the target's memory is not seen", c.Forks))
	}
	cov.Notes = append(cov.Notes, skipNotes(s.skips)...)
	cov.Notes = append(cov.Notes, s.tableNotes()...)
	return cov
}

// unprobed counts the functions that exist, are called and could not be probed:
// what they hand out or take back is missing.
func unprobed(skips []attach.Skip) []alloc.Cause {
	var n int64
	var first string
	for _, s := range skips {
		if s.Cause == attach.SkipThrows || s.Cause == attach.SkipIndirect {
			if n == 0 {
				first = s.String()
			}
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []alloc.Cause{{Name: "functions_not_probed", Count: n, Detail: "allocation functions not probed, such as " + first}}
}

// noteworthyGrowth is the growth of resident memory beside what is outstanding
// that is worth a word.
const noteworthyGrowth = 32 << 20

// growthNote tells a reader whose process grew by more than what is outstanding
// where to look: not at the sites. Empty where the sites explain the growth.
func growthNote(s *alloc.Snapshot) string {
	if s.Before.RSSAtEnd == 0 {
		return ""
	}
	var outstanding int64
	for i := range s.Sites {
		outstanding += s.Sites[i].InUseBytes
	}
	grown := s.Before.RSSAtEnd - s.Before.RSS
	rest := grown - outstanding
	if s.MinAge > 0 || rest < noteworthyGrowth || rest < grown/2 {
		return ""
	}
	return fmt.Sprintf("resident memory grew by %d MiB, %d MiB of it outstanding: the rest is freed memory that the "+
		"allocator keeps (fragmentation), older memory touched meanwhile, stacks and files", grown>>20, outstanding>>20)
}
