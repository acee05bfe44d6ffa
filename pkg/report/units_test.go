// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0:                 "0 B",
		1023:              "1023 B",
		1024:              "1.0 KiB",
		1536:              "1.5 KiB",
		1<<20 - 1:         "1.0 MiB",
		1<<20 - 1<<10:     "1023.0 KiB",
		210<<20 + 300<<10: "210.3 MiB",
		1 << 40:           "1.0 TiB",
		math.MaxInt64:     "8.0 EiB",
		-5:                "-5 B",
		-3 << 20:          "-3.0 MiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -12: "-12",
	} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{9_999_999: "9,999,999", 10_000_000: "10.0M", 2_500_000_000: "2.5G"} {
		if got := briefCount(n); got != want {
			t.Errorf("briefCount(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	tests := []struct {
		part, whole int64
		want        string
	}{
		{0, 0, "0%"},
		{0, 10, "0%"},
		{10, 10, "100%"},
		{1, 3, "33.3%"},
		{1, 1_000_000, "<0.1%"},
		{999, 1000, "99.9%"},
		{9991, 10_000, "99.91%"},
		{9996, 10_000, "99.96%"},
		{99_999, 100_000, "99.99%"},
		{999_999, 1_000_000, "99.99%"},
		{999_999_999, 1_000_000_000, "99.99%"},
	}
	for _, tt := range tests {
		if got := share(tt.part, tt.whole); got != tt.want {
			t.Errorf("share(%d, %d) = %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                 "0s",
		0:                            "0ms",
		840 * time.Millisecond:       "840ms",
		3 * time.Second:              "3.0s",
		9960 * time.Millisecond:      "10s",
		59400 * time.Millisecond:     "59s",
		59600 * time.Millisecond:     "1m00s",
		298 * time.Second:            "4m58s",
		3*time.Hour + 7*time.Minute:  "3h07m",
		2*24*time.Hour + 4*time.Hour: "2d04h",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	s := Status{
		Elapsed: 302 * time.Second, InUseBytes: 12 << 20, InUseObjects: 4321,
		AllocsPerSec: 81234.4, CoreShare: 0.031,
	}
	loss := s
	loss.Lost, loss.StacksPartial, loss.Estimated = 12, 7, true
	partial := s
	partial.StacksPartial = 1200
	tests := []struct {
		status Status
		width  int
		want   string
	}{
		{s, 0, "5m02s  outstanding 12.0 MiB in 4,321  81,234 allocs/s  costs 3.1% of a core  no losses"},
		{s, 80, "5m02s  outstanding 12.0 MiB in 4,321  81,234 allocs/s  costs 3.1% of a core"},
		{s, 60, "5m02s  outstanding 12.0 MiB in 4,321  81,234 allocs/s"},
		{s, 40, "5m02s  outstanding 12.0 MiB in 4,321"},
		{s, 30, "outstanding 12.0 MiB in 4,321"},
		{s, 10, "outstandi…"},
		{loss, 0, "5m02s  outstanding ~12.0 MiB in ~4,321  81,234 allocs/s  costs 3.1% of a core  LOST 12"},
		{loss, 80, "5m02s  outstanding ~12.0 MiB in ~4,321  81,234 allocs/s  LOST 12"},
		{loss, 30, "LOST 12"},
		{partial, 0, "5m02s  outstanding 12.0 MiB in 4,321  81,234 allocs/s  costs 3.1% of a core  1,200 stacks partial"},
		{Status{Elapsed: 900 * time.Millisecond}, 0, "0s  outstanding 0 B in 0  0 allocs/s  costs 0% of a core  no losses"},
		{Status{Elapsed: 7900 * time.Millisecond, CoreShare: 0.0001}, 0, "7s  outstanding 0 B in 0  0 allocs/s  costs <0.1% of a core  no losses"},
		{Status{Elapsed: time.Minute, CoreShare: 1.26}, 0, "1m00s  outstanding 0 B in 0  0 allocs/s  costs 126% of a core  no losses"},
	}
	for _, tt := range tests {
		if got := tt.status.Line(tt.width); got != tt.want {
			t.Errorf("at %d columns\n got %q\nwant %q", tt.width, got, tt.want)
		}
	}
}

func TestName(t *testing.T) {
	if got, want := name("_leak.cpython-311.so+0x1189", 16), "_leak.cp…+0x1189"; got != want {
		t.Errorf("name: %q, want %q", got, want)
	}
}
