// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"strings"
	"testing"
)

// slashComments are the files that are not Go and have comments like Go's.
var slashComments = regexp.MustCompile(`\.(c|h|cc)$`)

func TestLicenceLines(t *testing.T) {
	for _, f := range read(t).files {
		if f.generated() {
			continue
		}
		want := "SPDX-License-Identifier: Apache-2.0"
		if strings.HasPrefix(f.path, "bpf/") {
			want = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
		}
		lines := f.lines()
		first := lines[0]
		if strings.HasPrefix(first, "#!") && len(lines) > 1 {
			first = lines[1]
		}
		comment := "// "
		switch {
		case f.ast == nil && !slashComments.MatchString(f.path):
			comment = "# "
		case strings.HasSuffix(f.path, ".h") && first == "/* "+want+" */":
			continue // as the kernel's headers have it
		}
		if first != comment+want {
			t.Errorf("%s: begins with %q, want %q", f.path, first, comment+want)
		}
	}
}

// A file is read in one sitting; see the style's "files < 500 lines".
const maxFileLines = 500

func TestFileSizes(t *testing.T) {
	for _, f := range read(t).files {
		if n := len(f.lines()); n > maxFileLines && !f.generated() {
			t.Errorf("%s: %d lines, want at most %d; split it by idea and name the files for those", f.path, n, maxFileLines)
		}
	}
}

func TestNothingIsLeftForLater(t *testing.T) {
	later := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b|(?i)\bnot (yet )?implemented\b`)
	for _, f := range read(t).files {
		if strings.HasPrefix(f.path, "internal/rules/") {
			continue
		}
		for i, line := range f.lines() {
			if m := later.FindString(line); m != "" {
				t.Errorf("%s:%d: %q: do it, or return an error that tells the user what cannot be had", f.path, i+1, m)
			}
		}
	}
}

// The repository is read on machines other than the one it was written on.
func TestNoForeignPaths(t *testing.T) {
	local := regexp.MustCompile(`(^|[^\w./-])/(work|home/\w+)/`)
	for _, f := range read(t).files {
		for i, line := range f.lines() {
			if local.MatchString(line) {
				t.Errorf("%s:%d: a path of one machine: %s", f.path, i+1, strings.TrimSpace(line))
			}
		}
	}
}
