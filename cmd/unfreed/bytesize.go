// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// byteSize is a flag of bytes: a number with an optional unit, in powers of
// 1024 whichever way the unit is written.
type byteSize int64

// maxByteSize keeps the sampler's arithmetic within 64 bits.
const maxByteSize = 1 << 36

func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

func (b *byteSize) Type() string { return "bytes" }

func (b *byteSize) Set(s string) error {
	number := strings.TrimRight(strings.ToLower(s), "bikmg")
	unit := strings.ToLower(s[len(number):])
	var shift int
	switch unit {
	case "", "b":
	case "k", "kb", "kib":
		shift = 10
	case "m", "mb", "mib":
		shift = 20
	case "g", "gb", "gib":
		shift = 30
	default:
		return fmt.Errorf("unit %q is none of KiB, MiB, GiB", unit)
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return fmt.Errorf("%q is no size, such as 512KiB", s)
	}
	n *= float64(int64(1) << shift)
	if n < 1 || n > maxByteSize {
		return fmt.Errorf("%q is not between 1 byte and 64 GiB", s)
	}
	*b = byteSize(n)
	return nil
}
