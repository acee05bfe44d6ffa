// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// output is the profile to be written. The place is tried before tracing
// begins, and if it fails at the end all the same, another one is taken: what
// was traced must not be lost for want of a file.
type output struct {
	path string
	tmp  *os.File
}

// newOutput opens a temporary file beside the profile, so that it appears whole
// or not at all.
func newOutput(path string, pid int) (*output, error) {
	if path == "" {
		path = fmt.Sprintf("unfreed-%d-%s.pb.gz", pid, time.Now().Format("20060102-150405"))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the place of %q: %w", path, err)
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("writing %q: not a regular file (give another path with -o)", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("creating the profile: %w (give another path with -o)", err)
	}
	return &output{path: path, tmp: tmp}, nil
}

// write fills the profile and returns where it is.
func (o *output) write(fill func(io.Writer) error) (string, error) {
	err := fill(o.tmp)
	if err == nil {
		err = o.keep()
	}
	if err == nil {
		return o.path, nil
	}
	// The disk may be full, or the folder gone.
	spare, spareErr := os.CreateTemp("", strings.TrimSuffix(filepath.Base(o.path), ".pb.gz")+"-*.pb.gz")
	if spareErr != nil {
		return "", fmt.Errorf("writing %q: %w", o.path, errors.Join(err, spareErr))
	}
	defer spare.Close()
	if spareErr := fill(spare); spareErr != nil {
		os.Remove(spare.Name())
		return "", fmt.Errorf("writing %q: %w", o.path, errors.Join(err, spareErr))
	}
	return spare.Name(), nil
}

// keep gives the temporary file its name. Its mode is the usual one: a profile
// holds names and addresses, not the target's data.
func (o *output) keep() error {
	if err := o.tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := o.tmp.Close(); err != nil {
		return err
	}
	if err := os.Rename(o.tmp.Name(), o.path); err != nil {
		return err
	}
	o.tmp = nil
	return nil
}

// discard removes the temporary file if it was not kept.
func (o *output) discard() {
	if o.tmp != nil {
		o.tmp.Close()
		os.Remove(o.tmp.Name())
	}
}
