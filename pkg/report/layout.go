// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	"github.com/unfreed/unfreed/internal/terminal"
)

// name cuts the name of a function to n columns. One that is a file and an
// offset in it, for want of a symbol, keeps the offset.
func name(s string, n int) string {
	if i := strings.LastIndex(s, "+0x"); i >= 0 {
		return middle(s, i, n)
	}
	return terminal.Head(s, n)
}

// middle cuts a string to n columns in front of byte i, so that its beginning
// and what follows there are left, and a suffix ".so" before that with it.
func middle(s string, i, n int) string {
	if terminal.Columns(s) <= n {
		return s
	}
	if so := strings.LastIndex(s[:i], ".so"); so > 0 && terminal.Columns(s[so:]) < n/2 {
		i = so
	}
	if terminal.Columns(s[i:]) >= n {
		return terminal.Head(s, n)
	}
	return terminal.Head(s[:i], n-terminal.Columns(s[i:])) + s[i:]
}

// where cuts what location returns to n columns: a path keeps its end, the name
// of a module its beginning too.
func where(s string, n int) string {
	if strings.Contains(s, "/") {
		return terminal.Tail(s, n)
	}
	return middle(s, len(s), n)
}

// flow lays out the pieces of a site in lines of n columns, as many in a line as
// have room. The second one, the place of the first, gives way before it gets a
// line of its own.
func flow(pieces []string, n int) []string {
	const gap, minPlace = "  ", 12
	var lines []string
	line := ""
	for i, p := range pieces {
		room := n - terminal.Columns(line) - len(gap)
		switch {
		case p == "":
			continue
		case line == "":
			line = name(p, n)
		case terminal.Columns(p) <= room:
			line += gap + p
		case i == 1 && room >= minPlace:
			line += gap + where(p, room)
		default:
			lines, line = append(lines, line), where(p, n)
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// pair fits a name and its place into n columns. The place gives way first, as
// long as its end, which has the file and the line, is left.
func pair(function, place string, n int) (string, string) {
	const gap, minPlace = 2, 20
	if place == "" {
		return name(function, n), ""
	}
	if function == "" {
		return "", where(place, n)
	}
	room := n - gap
	if terminal.Columns(function)+terminal.Columns(place) <= room {
		return function, place
	}
	p := min(terminal.Columns(place), max(room-terminal.Columns(function), min(minPlace, room/2)))
	return name(function, room-p), where(place, p)
}
