// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// output is the profile to be written. The place is tried before tracing
// begins, and if it fails at the end all the same, another one is taken: what
// was traced must not be lost for want of a file. In between nothing lies there
// that an end by force could leave behind.
type output struct {
	path string
}

// newOutput decides where the profile goes: to the path, or under its usual name
// into the folder that the path is, or here if there is no path.
func newOutput(path string, pid int) (*output, error) {
	usual := fmt.Sprintf("unfreed-%d-%s.pb.gz", pid, time.Now().Format("20060102-150405"))
	switch st, err := os.Stat(path); {
	case path == "":
		path = usual
	case err == nil && st.IsDir():
		path = filepath.Join(path, usual)
	case err == nil && !st.Mode().IsRegular():
		return nil, fmt.Errorf("writing %q: not a regular file (give another path with -o)", path)
	case strings.HasSuffix(path, "/"):
		return nil, fmt.Errorf("writing into %q: %w (give another path with -o)", path, fs.ErrNotExist)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the place of %q: %w", path, err)
	}
	tmp, err := createBeside(abs)
	if err != nil {
		return nil, fmt.Errorf("writing %q: %w (give another path with -o)", abs, err)
	}
	return &output{abs}, errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// createBeside creates a temporary file in the folder of a path. Its error names
// no file: nobody asked for that one.
func createBeside(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	return f, withoutPath(err)
}

// withoutPath is the bare cause of an error that names a file.
func withoutPath(err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// write writes the profile and returns where it is. With an error that is the
// place taken instead, or nowhere.
func (o *output) write(profile []byte) (string, error) {
	err := o.replace(profile)
	if err == nil {
		return o.path, nil
	}
	// The disk may be full, or the folder gone.
	spare, spareErr := writeSpare(strings.TrimSuffix(filepath.Base(o.path), ".pb.gz")+"-*.pb.gz", profile)
	if spareErr != nil {
		return "", fmt.Errorf("writing %s: %w, and anywhere else: %w", o.path, withoutPath(err), spareErr)
	}
	return spare, fmt.Errorf("writing %s: %w; the profile is in %s (move it to a place with room)", o.path, withoutPath(err), spare)
}

// replace puts the profile at its place, whole or not at all. Its mode is the
// usual one: a profile holds names and addresses, not the target's data.
func (o *output) replace(profile []byte) error {
	tmp, err := createBeside(o.path)
	if err != nil {
		return err
	}
	_, err = tmp.Write(profile)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), o.path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// writeSpare writes the profile to a new file in the folder for temporary ones.
func writeSpare(pattern string, profile []byte) (string, error) {
	f, err := os.CreateTemp("", pattern)
	if err != nil {
		return "", err
	}
	_, err = f.Write(profile)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
