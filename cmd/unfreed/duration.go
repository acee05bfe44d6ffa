// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"
)

// duration is a flag of time.
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return "0" // which help does not show as a default
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err == nil {
		*d = duration(v)
		return nil
	}
	if _, err := time.ParseDuration(s + "s"); err == nil {
		return fmt.Errorf("a number needs a unit, such as %ss", s)
	}
	return errors.New("not a duration, such as 5s, 10m or 1h30m")
}
