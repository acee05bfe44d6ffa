// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/internal/terminal"
	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil/golden"
)

// compare holds a rendering against testdata/golden/report/NAME.
func compare(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("..", "..", "testdata", "golden", "report", name), []byte(got))
}

func TestText(t *testing.T) {
	snapshots := map[string]func() *alloc.Snapshot{"quiet": quiet, "loud": loud, "empty": empty, "training": training}
	profile := TextOptions{Profile: "unfreed-4242.pb.gz", Open: "unfreed web unfreed-4242.pb.gz"}
	for name, s := range snapshots {
		for _, width := range []int{60, 80, 120} {
			o := profile
			o.Width = width
			got := Text(s(), o)
			compare(t, fmt.Sprintf("%s-%d.txt", name, width), got)
			for _, l := range strings.Split(got, "\n") {
				if n := terminal.Columns(l); n > width {
					t.Errorf("%s at %d columns has a line of %d: %s", name, width, n, l)
				}
			}
		}
	}

	o := profile
	o.Top = 2
	compare(t, "quiet-top2.txt", Text(quiet(), o))
	compare(t, "quiet-python.txt", Text(quiet(), TextOptions{View: alloc.View{DropNative: true}}))
	compare(t, "quiet-native.txt", Text(quiet(), TextOptions{View: alloc.View{DropPython: true}}))

	o = profile
	o.Color = true
	colored := Text(loud(), o)
	compare(t, "loud-color.txt", colored)
	o.Color = false
	plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colored, "")
	if diff := cmp.Diff(trimmed(Text(loud(), o)), trimmed(plain)); diff != "" {
		t.Errorf("colour changes more than colour (-plain +stripped):\n%s", diff)
	}
}

// trimmed is a text without the blanks at the ends of its lines.
func trimmed(s string) string {
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(s, "")
}

func TestJSON(t *testing.T) {
	for name, s := range map[string]*alloc.Snapshot{"quiet": quiet(), "loud": loud(), "empty": empty()} {
		got, err := JSON(s, JSONOptions{Profile: "unfreed-4242.pb.gz"})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, name+".json", string(got))
	}
}
