// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseMaps(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []Mapping
	}{
		{"empty", "", nil},
		{
			"file",
			"7f0c2a3c1000-7f0c2a3c2000 r-xp 0001f000 fe:01 1835 /usr/lib/x86_64-linux-gnu/libc.so.6\n",
			[]Mapping{{
				Start: 0x7f0c2a3c1000, End: 0x7f0c2a3c2000, Offset: 0x1f000, Inode: 1835,
				Dev: unix.Mkdev(0xfe, 1), Read: true, Exec: true, Path: "/usr/lib/x86_64-linux-gnu/libc.so.6",
			}},
		},
		{
			"anonymous, without a trailing newline",
			"1000-2000 rw-p 00000000 00:00 0 ",
			[]Mapping{{Start: 0x1000, End: 0x2000, Read: true, Write: true}},
		},
		{
			"special",
			"1000-2000 rw-p 00000000 00:00 0                          [heap]\n" +
				"3000-4000 rw-p 00000000 00:00 0                          [anon:glibc: malloc arena]\n" +
				"5000-6000 rw-s 00000000 00:01 7                          anon_inode:[io_uring]\n",
			[]Mapping{
				{Start: 0x1000, End: 0x2000, Read: true, Write: true, Path: "[heap]"},
				{Start: 0x3000, End: 0x4000, Read: true, Write: true, Path: "[anon:glibc: malloc arena]"},
				{Start: 0x5000, End: 0x6000, Inode: 7, Dev: unix.Mkdev(0, 1), Read: true, Write: true, Shared: true, Path: "anon_inode:[io_uring]"},
			},
		},
		{
			"deleted",
			"1000-2000 r--p 00000000 08:02 12 /tmp/a b (deleted)\n" +
				"2000-3000 rw-s 00000000 00:01 1027 /memfd:x y (deleted)\n" +
				"3000-4000 r--p 00000000 08:02 13 /tmp/c (deleted) (deleted)\n" +
				"4000-5000 r--p 00000000 00:00 0 [anon:odd (deleted)\n",
			[]Mapping{
				{Start: 0x1000, End: 0x2000, Inode: 12, Dev: unix.Mkdev(8, 2), Read: true, Path: "/tmp/a b", Deleted: true},
				{Start: 0x2000, End: 0x3000, Inode: 1027, Dev: unix.Mkdev(0, 1), Read: true, Write: true, Shared: true, Path: "/memfd:x y", Deleted: true},
				{Start: 0x3000, End: 0x4000, Inode: 13, Dev: unix.Mkdev(8, 2), Read: true, Path: "/tmp/c (deleted)", Deleted: true},
				{Start: 0x4000, End: 0x5000, Read: true, Path: "[anon:odd (deleted)"},
			},
		},
		{
			"newline in the name, several spaces",
			`1000-2000 r--p 00000000 08:02 12 /tmp/a\012  b  ` + "\n",
			[]Mapping{{Start: 0x1000, End: 0x2000, Inode: 12, Dev: unix.Mkdev(8, 2), Read: true, Path: "/tmp/a\n  b  "}},
		},
		{
			"sorted, neighbours of one file",
			"3000-4000 r--p 00000000 08:02 12 /b\n1000-2000 r--p 00000000 08:02 11 /a\n2000-3000 r-xp 00001000 08:02 11 /a\n",
			[]Mapping{
				{Start: 0x1000, End: 0x2000, Inode: 11, Dev: unix.Mkdev(8, 2), Read: true, Path: "/a"},
				{Start: 0x2000, End: 0x3000, Offset: 0x1000, Inode: 11, Dev: unix.Mkdev(8, 2), Read: true, Exec: true, Path: "/a"},
				{Start: 0x3000, End: 0x4000, Inode: 12, Dev: unix.Mkdev(8, 2), Read: true, Path: "/b"},
			},
		},
		{
			"top of the address space",
			"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n",
			[]Mapping{{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Path: "[vsyscall]"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseMaps(strings.NewReader(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("mappings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseMapsCorrupt(t *testing.T) {
	for name, text := range map[string]string{
		"blank line":       "\n",
		"no columns":       "1000-2000\n",
		"no range":         "1000 r--p 0 0:0 0\n",
		"empty range":      "1000-1000 r--p 0 0:0 0\n",
		"reversed range":   "2000-1000 r--p 0 0:0 0\n",
		"not hexadecimal":  "100g-2000 r--p 0 0:0 0\n",
		"negative":         "-1000-2000 r--p 0 0:0 0\n",
		"too large":        "1000-10000000000000000 r--p 0 0:0 0\n",
		"permissions":      "1000-2000 r-- 0 0:0 0\n",
		"device":           "1000-2000 r--p 0 00 0\n",
		"inode":            "1000-2000 r--p 0 0:0 x\n",
		"too long":         "1000-2000 r--p 0 0:0 1 /" + strings.Repeat("a", maxMapsLine) + "\n",
		"too long, no end": strings.Repeat("1", maxMapsLine+1),
	} {
		t.Run(name, func(t *testing.T) {
			maps, err := ParseMaps(strings.NewReader(text))
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, %v; want ErrCorrupt", maps, err)
			}
		})
	}
}

// endlessMaps is a file that never ends.
type endlessMaps struct{}

func (endlessMaps) Read(b []byte) (int, error) {
	const line = "1000-2000 r--p 00000000 08:02 12 \n"
	n := 0
	for n+len(line) <= len(b) {
		n += copy(b[n:], line)
	}
	return n, nil
}

func TestParseMapsEndless(t *testing.T) {
	if _, err := parseMaps(endlessMaps{}, 1000); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

func FuzzParseMaps(f *testing.F) {
	own, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1000-2000 r--p 00000000 08:02 12 /tmp/a\\012b (deleted)\n"))
	f.Add([]byte("1000-2000 rw-p 00000000 00:00 0 [anon:x]\n0-1 ---s 0 0:0 0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		maps, err := ParseMaps(strings.NewReader(string(text)))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for i, m := range maps {
			if m.Start >= m.End {
				t.Errorf("mapping %d is empty: %+v", i, m)
			}
			if i > 0 && maps[i-1].Start > m.Start {
				t.Errorf("mapping %d is out of order", i)
			}
			if m.Deleted && m.Inode == 0 {
				t.Errorf("mapping %d of no file is deleted", i)
			}
		}
	})
}

func BenchmarkParseMaps(b *testing.B) {
	line := "7f0c2a3c1000-7f0c2a3c2000 r-xp 0001f000 fe:01 1835 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
	text := strings.Repeat(line, 2000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMaps(strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
