// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	"github.com/unfreed/unfreed/internal/terminal"
)

// name cuts the name of a function to n columns. One that is a file and an
// offset in it, for want of a symbol, keeps the offset.
func name(s string, n int) string {
	i := strings.LastIndex(s, "+0x")
	if i < 0 || terminal.Columns(s) <= n || terminal.Columns(s[i:]) >= n {
		return terminal.Head(s, n)
	}
	return terminal.Head(s[:i], n-terminal.Columns(s[i:])) + s[i:]
}

// pair fits a name and its place into n columns. The place gives way first, as
// long as its end, which has the file and the line, is left.
func pair(function, place string, n int) (string, string) {
	const gap, minPlace = 2, 20
	if place == "" {
		return name(function, n), ""
	}
	if function == "" {
		return "", terminal.Tail(place, n)
	}
	room := n - gap
	if terminal.Columns(function)+terminal.Columns(place) <= room {
		return function, place
	}
	p := min(terminal.Columns(place), max(room-terminal.Columns(function), min(minPlace, room/2)))
	return name(function, room-p), terminal.Tail(place, p)
}
