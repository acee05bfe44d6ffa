// SPDX-License-Identifier: Apache-2.0

// Package terminal fits text that others chose, such as names and paths of the
// target, into lines of a terminal. It computes strings only and writes none.
package terminal

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Clean makes a string that the target chose fit for a terminal: no escape
// sequences, no line breaks, no direction overrides.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Columns returns how many columns of a terminal a string takes.
func Columns(s string) int {
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

// Head cuts a string to n columns from the left: names keep their beginning.
func Head(s string, n int) string {
	if Columns(s) <= n {
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

// Tail cuts a string to n columns from the right: paths keep their end.
func Tail(s string, n int) string {
	if Columns(s) <= n {
		return s
	}
	if n <= 1 {
		return strings.Repeat("…", max(n, 0))
	}
	cut := Columns(s) - (n - 1)
	for i, r := range s {
		if cut <= 0 {
			return "…" + s[i:]
		}
		cut -= runeColumns(r)
	}
	return "…"
}

// Wrap breaks a text into lines of n columns at spaces; words that are longer
// stand alone.
func Wrap(s string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case Columns(line)+1+Columns(word) <= n:
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

// PadLeft fills a string up to n columns, which aligns it right.
func PadLeft(s string, n int) string {
	return strings.Repeat(" ", max(n-Columns(s), 0)) + s
}

// PadRight fills a string up to n columns, which aligns it left.
func PadRight(s string, n int) string {
	return s + strings.Repeat(" ", max(n-Columns(s), 0))
}
