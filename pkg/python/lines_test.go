// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestLinesMatchPython compares the decoded line tables of some thousand real
// functions with what Python itself reads out of them.
func TestLinesMatchPython(t *testing.T) {
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			out, err := py.Command(py.File(t, "pkg/python/testdata/lines.py")).Output()
			if err != nil {
				t.Fatal(err)
			}
			format := layouts[uint8(py.Minor)].LineFormat
			functions := 0
			for s := newLineScanner(out); s.Scan(); functions++ {
				compareLines(t, format, s.Bytes())
			}
			if functions < 1000 {
				t.Errorf("%d functions were compared, want 1000 or more", functions)
			}
		})
	}
}

func newLineScanner(b []byte) *bufio.Scanner {
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<24)
	return s
}

func compareLines(t *testing.T, format LineFormat, record []byte) {
	t.Helper()
	var text string
	var first int32
	var ranges [][3]*int64 // start, end, line or null
	if err := json.Unmarshal(record, &[]any{&text, &first, &ranges}); err != nil {
		t.Fatalf("parsing %.100q: %v", record, err)
	}
	table, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	lines := parseLines(format, table, first, true)
	for _, r := range ranges {
		want := 0
		if r[2] != nil {
			want = int(*r[2])
		}
		for off := *r[0]; off < *r[1]; off += codeUnit {
			if got := lines.at(off); got != want {
				t.Fatalf("table %s, first line %d: offset %d is of line %d, want %d", text, first, off, got, want)
			}
		}
	}
}

func TestCodeLine(t *testing.T) {
	for _, tt := range []struct {
		name   string
		format LineFormat
		table  []byte
		whole  bool
		want   map[int64]int // of first line 10
	}{
		{
			"3.9: the last line goes on to the end of the code", LinesDelta,
			[]byte{0, 1, 4, 2}, true,
			map[int64]int{-2: 10, 0: 11, 3: 11, 4: 13, 1000: 13},
		},
		{
			"3.9: the end of a table that was cut is unknown", LinesDelta,
			[]byte{4, 1}, false,
			map[int64]int{0: 10, 3: 10, 4: 0},
		},
		{
			"3.9: a line that goes back", LinesDelta,
			[]byte{2, 0xfe}, true,
			map[int64]int{0: 10, 2: 8},
		},
		{
			"3.9: a line increment beyond one byte takes several pairs", LinesDelta,
			[]byte{2, 127, 0, 73}, true,
			map[int64]int{0: 10, 2: 210},
		},
		{
			"3.10: a range without a line", LinesRange,
			[]byte{2, 0, 4, 0x80, 2, 3}, true,
			map[int64]int{-2: 10, 0: 10, 2: 0, 4: 0, 6: 13, 8: 0},
		},
		{
			"3.11: every kind of entry", LinesLocation,
			[]byte{
				0x80 | 0<<3 | 1, 0, // short, 2 units
				0x80 | 11<<3, 0, 0, // one line on
				0x80 | 15<<3,       // none
				0x80 | 13<<3, 0x03, // back by one, no columns
				0x80 | 14<<3, 0x40 | 0x08, 0x01, 0, 0, 0, // long: 36 lines on
			}, true,
			map[int64]int{-2: 10, 0: 10, 2: 10, 4: 11, 6: 0, 8: 10, 10: 46, 12: 0},
		},
		{
			"3.11: cut within an entry", LinesLocation,
			[]byte{0x80 | 0<<3, 0, 0x80 | 14<<3, 0x48}, false,
			map[int64]int{0: 10, 2: 0},
		},
		{
			"3.11: damaged", LinesLocation,
			[]byte{0x01, 0x80}, true,
			map[int64]int{0: 0, 2: 0},
		},
		{
			"3.11: a line before the first", LinesLocation,
			[]byte{0x80 | 13<<3, 0x40 | 0x3f, 0x3f}, true,
			map[int64]int{0: 0},
		},
		{"an empty table", LinesLocation, nil, true, map[int64]int{-2: 10, 0: 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Code{FirstLine: 10, lines: parseLines(tt.format, tt.table, 10, tt.whole)}
			for off, want := range tt.want {
				if got := c.Line(off); got != want {
					t.Errorf("offset %d is of line %d, want %d", off, got, want)
				}
			}
		})
	}
}
