// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestColumns(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "実行": 4, "é": 1, "e\u0301": 1, "…": 1} {
		if got := Columns(s); got != want {
			t.Errorf("Columns(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Clean("a\x1b[31m\n\u202e\xff"), "a\ufffd[31m\ufffd\ufffd\ufffd"},
		{Head("operator new", 9), "operator…"},
		{Head("実行する", 6), "実行…"},
		{Head("abc", 3), "abc"},
		{Head("abc", 1), "…"},
		{Head("abc", -1), ""},
		{Tail("/a/b/c/serve.py:10", 12), "…serve.py:10"},
		{Tail("abc", 0), ""},
		{PadLeft("実", 4), "  実"},
		{PadRight("実", 4), "実  "},
		{PadRight("abc", 2), "abc"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	want := []string{"the first", "longerthanten", "and more"}
	if diff := cmp.Diff(want, Wrap("the first longerthanten and more ", 10)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if got := Wrap(" ", 10); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

func FuzzCut(f *testing.F) {
	f.Add("/srv/app/serve.py:10", 12)
	f.Add("実行(", 3)
	f.Add("e\u0301\x1b[2J\xff", 2)
	f.Fuzz(func(t *testing.T, s string, n int) {
		s, n = Clean(s), max(min(n, 200), 0)
		if strings.ContainsAny(s, "\x1b\n\r") {
			t.Errorf("control characters in %q", s)
		}
		for _, got := range []string{Head(s, n), Tail(s, n)} {
			if Columns(got) > n {
				t.Errorf("cut %q to %d columns: %q has %d", s, n, got, Columns(got))
			}
		}
		for _, l := range Wrap(s, n) {
			if Columns(l) > n && strings.Contains(l, " ") {
				t.Errorf("line %q of %d columns, want %d", l, Columns(l), n)
			}
		}
	})
}
