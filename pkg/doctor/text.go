// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TextOptions says how Text renders. The zero value is for a file.
type TextOptions struct {
	Color bool // use ANSI colours; for the caller to decide, by terminal and NO_COLOR
}

// The layout: 80 columns, so that it can be pasted anywhere.
const (
	textWidth   = 80
	stateColumn = 10 // "degraded" and two spaces
	nameColumn  = 24 // the longest name and two spaces
	reasonLead  = "why: "
	remedyLead  = "try: "
	textIndent  = 2
)

// colors of the states.
var colors = map[State]string{OK: "32", Degraded: "33", Missing: "31", Unknown: "33"}

// Text renders the report for people, no line longer than 80 columns but for
// words that are longer themselves.
func Text(r *Report, o TextOptions) string {
	t := text{color: o.Color}
	t.line("unfreed doctor on Linux %s, %s", r.Kernel, r.Machine)
	if r.Process != nil {
		command := clean(strings.Join(r.Process.Command, " "))
		t.line("%s", cut(fmt.Sprintf("looking at PID %d: %s", r.Process.PID, command), textWidth))
	}
	var area Area
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Area != area {
			area = f.Area
			t.line("")
			t.line("%s", t.paint("1", strings.ToUpper(string(area[:1]))+string(area[1:])))
		}
		t.finding(f)
		// Without privileges one reason stands for a whole area.
		if next := i + 1; next == len(r.Findings) || !sameNotes(f, &r.Findings[next]) {
			t.note(reasonLead, f.Reason)
			t.note(remedyLead, f.Remedy)
		}
	}
	t.line("")
	t.verdict(r)
	return t.b.String()
}

type text struct {
	b     strings.Builder
	color bool
}

func (t *text) line(format string, args ...any) {
	t.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	t.b.WriteByte('\n')
}

func (t *text) paint(code, s string) string {
	if !t.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *text) finding(f *Finding) {
	state := fmt.Sprintf("%-*s", stateColumn, f.State)
	state = strings.Replace(state, string(f.State), t.paint(colors[f.State], string(f.State)), 1)
	lead := strings.Repeat(" ", textIndent) + state + fmt.Sprintf("%-*s  ", nameColumn-2, f.Name)
	const column = textIndent + stateColumn + nameColumn
	for i, l := range wrap(clean(f.Detail), textWidth-column) {
		if i > 0 {
			lead = strings.Repeat(" ", column)
		}
		t.line("%s%s", lead, l)
	}
	if f.Detail == "" {
		t.line("%s", lead)
	}
}

// sameNotes reports whether two findings have the same reason and remedy.
func sameNotes(a, b *Finding) bool {
	return a.Area == b.Area && a.State == b.State && a.Reason == b.Reason && a.Remedy == b.Remedy
}

// note renders what belongs to a finding, below its name.
func (t *text) note(lead, s string) {
	const column = textIndent + stateColumn
	for i, l := range wrap(clean(s), textWidth-column-len(lead)) {
		if i > 0 {
			lead = strings.Repeat(" ", len(lead))
		}
		t.line("%s%s%s", strings.Repeat(" ", column), lead, l)
	}
}

// verdict is the last line: what it all comes to.
func (t *text) verdict(r *Report) {
	blocked := r.Blocked()
	if blocked != nil {
		why := blocked.Reason
		if blocked.Area != Target {
			why = blocked.Name + ": " + why
		}
		for _, l := range wrap(clean("Attach would not work: "+why+"."), textWidth) {
			t.line("%s", t.paint("1;31", l))
		}
		return
	}
	degraded, unknown := 0, 0
	for _, f := range r.Findings {
		switch f.State {
		case Degraded:
			degraded++
		case Unknown:
			unknown++
		}
	}
	drawbacks := ""
	if degraded > 0 {
		drawbacks = ", with " + plural(degraded, "drawback")
	}
	s := "Attach works here" + drawbacks + "."
	switch {
	case unknown > 0:
		s = "Nothing is known to be in the way, but " + plural(unknown, "question") + " could not be answered."
	case r.Process != nil:
		s = fmt.Sprintf("Attach would work%s: sudo unfreed attach %d", drawbacks, r.Process.PID)
	}
	t.line("%s", t.paint("1", s))
}

// clean makes a string that the target chose fit for a terminal: no escape
// sequences, no line breaks, no direction overrides.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// cut shortens a string to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// wrap breaks a text into lines of n characters at spaces.
func wrap(s string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= n:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// plural renders a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return group(n) + " " + noun + "s"
}

// group renders a number with separators of thousands.
func group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
