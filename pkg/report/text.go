// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/unfreed/unfreed/internal/terminal"
	"github.com/unfreed/unfreed/pkg/alloc"
)

// TextOptions says how the text report is rendered. The zero value gives the
// report as it stands in a file: 80 columns, no colour.
type TextOptions struct {
	Width int  // of the terminal; clamped to a sensible range, 0 is 80
	Color bool // use ANSI colours; for the caller to decide, by terminal and NO_COLOR
	Top   int  // how many sites to show, 0 is 10
	View  alloc.View
	// Profile is the path of the written profile and Open the command that
	// shows it; both may be empty.
	Profile, Open string
}

// The range of widths: below, columns have no room left; above, lines get
// harder to read and not more telling.
const (
	minWidth     = 60
	maxWidth     = 140
	defaultWidth = 80
	defaultTop   = 10
)

// Text renders the report that ends an observation. Lines do not exceed the
// width, but for words that are longer themselves, like a path to copy.
func Text(s *alloc.Snapshot, o TextOptions) string {
	t := &text{
		s:     s,
		o:     o,
		width: min(max(cmp.Or(o.Width, defaultWidth), minWidth), maxWidth),
		paint: paint(o.Color),
	}
	t.header()
	t.incomplete()
	t.sites()
	t.coverage()
	t.cost()
	t.profile()
	return t.b.String()
}

// text is a report in the making.
type text struct {
	s     *alloc.Snapshot
	o     TextOptions
	width int
	paint paint
	b     strings.Builder
}

func (t *text) line(format string, args ...any) {
	t.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	t.b.WriteByte('\n')
}

// header says what was observed and how.
func (t *text) header() {
	s := t.s
	id := fmt.Sprintf("PID %d", s.Target.PID)
	if s.Target.Python != "" {
		id += ", Python " + s.Target.Python
	}
	id = terminal.Clean(id)
	command := terminal.Head(terminal.Clean(strings.Join(strings.Fields(strings.Join(s.Target.Command, " ")), " ")), t.width-terminal.Columns(id)-len("unfreed:  ()"))
	t.line("%s %s (%s)", t.paint.bold("unfreed:"), command, id)

	mode := "every allocation"
	if s.SampleBytes > 1 {
		mode = "sampled every " + Bytes(s.SampleBytes) + ", numbers are estimates"
	}
	t.fill("", fmt.Sprintf("traced for %s, %s; ended: %s", span(s.Duration), mode, terminal.Clean(s.Ended)), nil)
	t.line("")
}

// incomplete says loudly that numbers may be wrong.
func (t *text) incomplete() {
	c := &t.s.Coverage
	if !c.Incomplete() {
		return
	}
	t.line("%s", t.paint.alarm(terminal.PadRight("!! INCOMPLETE: the numbers below may be wrong", t.width)))
	for _, x := range c.EventsLost {
		t.fill("!!   ", cause(&x), t.paint.red)
	}
	t.line("")
}

// The columns of the table of sites in front of the site itself.
const (
	bytesColumn  = 10
	shareColumn  = 7
	countColumn  = 10
	oldestColumn = 8
	siteColumn   = bytesColumn + shareColumn + countColumn + oldestColumn + 2
)

// minDetail is the room that the lines below a site get at least, in narrow
// terminals by starting further left.
const minDetail = defaultWidth - siteColumn

// columnsOf renders a line of the table in front of the site.
func columnsOf(bytes, share, count, oldest string) string {
	return terminal.PadLeft(bytes, bytesColumn) + terminal.PadLeft(share, shareColumn) +
		terminal.PadLeft(count, countColumn) + terminal.PadLeft(oldest, oldestColumn) + "  "
}

// sites renders the totals and the table of sites.
func (t *text) sites() {
	list := rows(t.o.View.Sites(t.s.Sites))
	var bytes, objects int64
	for i := range list {
		bytes += list[i].bytes
		objects += list[i].objects
	}
	t.totals(bytes, objects)
	t.line("")
	t.line("%s", t.paint.dim(columnsOf("BYTES", "SHARE", "COUNT", "OLDEST")+"SITE"))
	top := min(len(list), cmp.Or(t.o.Top, defaultTop))
	for i := range list[:top] {
		t.site(&list[i], bytes)
	}
	if rest := list[top:]; len(rest) > 0 {
		var b, n int64
		r := row{}
		for i := range rest {
			b += rest[i].bytes
			n += rest[i].objects
			r.oldest = max(r.oldest, rest[i].oldest)
		}
		t.line("%s%s", columnsOf(Bytes(b), share(b, bytes), briefCount(n), span(r.oldest)),
			t.paint.dim(plural(int64(len(rest)), "more site")))
	}
	t.before()
	t.line("")
}

func (t *text) totals(bytes, objects int64) {
	about := ""
	if t.s.SampleBytes > 1 {
		about = "about "
	}
	t.fill("", fmt.Sprintf("Outstanding since attach: %s%s in %s",
		about, Bytes(bytes), plural(objects, "allocation")), t.paint.bold)
	host, _ := t.s.InUse(alloc.KindHost)
	if mapped, _ := t.s.InUse(alloc.KindMmap); mapped > 0 {
		t.fill("  ", fmt.Sprintf("%s %s, %s %s (mapped, not necessarily resident)",
			alloc.KindHost, Bytes(host), alloc.KindMmap, Bytes(mapped)), nil)
	}
	if t.s.MinAge > 0 {
		t.fill("  ", fmt.Sprintf("only allocations at least %s old", span(t.s.MinAge)), nil)
	}
}

// site renders a row: the Python line, and below it the native function.
func (t *text) site(r *row, total int64) {
	most := &r.places[0]
	name, at := r.where, r.at
	below := []string{most.function}
	switch {
	case r.where == "" && most.via == "":
		name, below = most.function, nil // a stack without frames, or a view without any
	case r.where == "":
		name, at = most.via, most.in
	case most.via != "":
		below = []string{most.function + " in " + most.via, most.in}
	case !t.o.View.DropNative:
		below = []string{most.function + ", called by Python itself"}
	}
	if n := int64(len(r.places) - 1); n > 0 {
		noun := "more native place"
		if t.o.View.DropNative {
			noun = "more function"
		}
		below = append(below, "and "+plural(n, noun))
	}
	function, at := pair(name, at, t.width-siteColumn)
	t.line("%s%s  %s", columnsOf(Bytes(r.bytes), share(r.bytes, total), briefCount(r.objects), span(r.oldest)),
		t.paint.bold(function), at)
	column := min(siteColumn, t.width-minDetail)
	for _, l := range flow(below, t.width-column) {
		t.line("%s%s", strings.Repeat(" ", column), t.paint.dim(l))
	}
}

// before renders what the target held when unfreed came, as the last row.
func (t *text) before() {
	b := &t.s.Before
	lines := terminal.Wrap(t.beforeText(), t.width-siteColumn)
	t.line("%s%s", columnsOf(Bytes(b.RSS), "", "", ""), lines[0])
	for _, l := range lines[1:] {
		t.line("%s%s", strings.Repeat(" ", siteColumn), l)
	}
}

func (t *text) beforeText() string {
	b := &t.s.Before
	s := "resident before attach"
	if b.RSSAtEnd > 0 {
		s += ", " + Bytes(b.RSSAtEnd) + " at the end"
	}
	if b.FreesUnmatched > 0 {
		s += "; " + plural(b.FreesUnmatched, "free") + " of it since"
		if b.FreedBytes > 0 {
			s += " (" + Bytes(b.FreedBytes) + ")"
		}
	}
	return s
}

// cost says what observing did to the target and the machine.
func (t *text) cost() {
	c := &t.s.Cost
	taken := c.ProgramTime + c.TrapTime
	used := corePercent(coreShare(t.s))
	if !strings.HasPrefix(used, "<") {
		used = "about " + used
	}
	s := fmt.Sprintf("%s of a core, %s", used, plural(c.Hits, "probe hit"))
	if c.Hits > 0 {
		s += fmt.Sprintf(" of %.1f us", float64(taken.Nanoseconds())/float64(c.Hits)/1e3)
	}
	t.field("cost", s, nil)
	t.field("unfreed", fmt.Sprintf("%s resident, %s kernel maps, ready after %s",
		Bytes(c.OwnRSS), Bytes(c.KernelMapBytes), span(c.StartUp)), nil)
}

// coreShare is how much of one core observing took from the target.
func coreShare(s *alloc.Snapshot) float64 {
	if s.Duration <= 0 {
		return 0
	}
	return float64(s.Cost.ProgramTime+s.Cost.TrapTime) / float64(s.Duration)
}

// profile says where the profile is and how to open it.
func (t *text) profile() {
	if t.o.Profile == "" {
		return
	}
	t.line("")
	t.line("%s %s", t.paint.bold("Profile:"), terminal.Clean(t.o.Profile))
	if t.o.Open != "" {
		t.line("   open: %s", terminal.Clean(t.o.Open))
	}
}
