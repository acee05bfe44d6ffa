// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes renders an amount of memory in binary units with one decimal, "12.3
// MiB"; below 1 KiB exactly, "123 B".
func Bytes(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f := math.Abs(float64(n))
	if f < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	i := -1
	// 1023.95 would round to "1024.0".
	for f >= 1023.95 && i < len(units)-1 || i < 0 {
		f /= 1024
		i++
	}
	if n < 0 {
		f = -f
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// count renders a number with thousands separators.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	for i, d := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// briefCount is count for a narrow column: from ten millions on "12.3M".
func briefCount(n int64) string {
	switch {
	case n < 1e7:
		return count(n)
	case n < 1e9:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1fG", float64(n)/1e9)
}

// plural renders a number with its noun.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// share renders part of whole in percent. Only everything is 100% and only
// nothing 0%: what is missing or left must not be rounded away.
func share(part, whole int64) string {
	switch {
	case whole <= 0 || part <= 0:
		return "0%"
	case part >= whole:
		return "100%"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p < 0.1:
		return "<0.1%"
	case p > 99.9:
		return fmt.Sprintf("%.2f%%", math.Floor(100*p)/100)
	}
	return fmt.Sprintf("%.1f%%", p)
}

// span renders a duration in the two units that matter, "4m58s", "3h07m",
// "2d04h"; below ten seconds with a decimal.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second-50*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s%86400/3600)
}
