// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

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

// columns returns how many columns of a terminal a string takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if r < unicode.MaxLatin1 {
		return 1
	}
	if unicode.Is(unicode.Mn, r) {
		return 0 // combines with the one before
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// head cuts a string to n columns from the left: names keep their beginning.
func head(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	if n <= 1 {
		return strings.Repeat("…", max(n, 0))
	}
	used := 1 // the ellipsis
	for i, r := range s {
		if used += runeColumns(r); used > n {
			return s[:i] + "…"
		}
	}
	return s
}

// name cuts the name of a function to n columns. One that is a file and an
// offset in it, for want of a symbol, keeps the offset.
func name(s string, n int) string {
	i := strings.LastIndex(s, "+0x")
	if i < 0 || columns(s) <= n || columns(s[i:]) >= n {
		return head(s, n)
	}
	return head(s[:i], n-columns(s[i:])) + s[i:]
}

// tail cuts a string to n columns from the right: paths keep their end.
func tail(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	if n <= 1 {
		return strings.Repeat("…", max(n, 0))
	}
	cut := columns(s) - (n - 1)
	for i, r := range s {
		if cut <= 0 {
			return "…" + s[i:]
		}
		cut -= runeColumns(r)
	}
	return "…"
}

// pair fits a name and its place into n columns. The place gives way first, as
// long as its end, which has the file and the line, is left.
func pair(function, place string, n int) (string, string) {
	const gap, minPlace = 2, 20
	if place == "" {
		return name(function, n), ""
	}
	if function == "" {
		return "", tail(place, n)
	}
	room := n - gap
	if columns(function)+columns(place) <= room {
		return function, place
	}
	p := min(columns(place), max(room-columns(function), min(minPlace, room/2)))
	return name(function, room-p), tail(place, p)
}

// wrap breaks a text into lines of n columns at spaces; words that are longer
// stand alone.
func wrap(s string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= n:
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

// padLeft fills a string up to n columns, which aligns it right.
func padLeft(s string, n int) string {
	return strings.Repeat(" ", max(n-columns(s), 0)) + s
}

// padRight fills a string up to n columns, which aligns it left.
func padRight(s string, n int) string {
	return s + strings.Repeat(" ", max(n-columns(s), 0))
}
