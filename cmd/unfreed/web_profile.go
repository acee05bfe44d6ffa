// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/google/pprof/profile"
)

// maxProfile bounds how much a profile may hold once decompressed. Ours have
// some megabytes; gzip packs zeros a thousandfold, and the file may come from
// anywhere.
const maxProfile = 1 << 30

// errNotProfile says that a file is not a pprof profile.
var errNotProfile = errors.New("not a pprof profile")

// readProfile reads a profile that pprof understands, gzipped or not.
func readProfile(path string) (*profile.Profile, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (`unfreed attach PID -o FILE` writes a profile)", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, fmt.Errorf("reading %q: is a directory (name the profile in it)", path)
	}
	data, err := readBounded(f)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	p, err := profile.ParseData(data)
	if err == nil && len(p.SampleType) == 0 {
		err = errors.New("no sample types") // an empty protobuf is anything
	}
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w: %w (unfreed attach writes profiles, named unfreed-PID-TIME.pb.gz)", path, errNotProfile, err)
	}
	return p, nil
}

// readBounded returns the contents of a file, decompressed if it is gzipped.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := readAll(r)
	if err != nil || !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: decompressing: %w", errNotProfile, err)
	}
	data, err = readAll(z)
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w (the file may be cut short)", err)
	}
	return data, nil
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err == nil && len(data) > maxProfile {
		err = fmt.Errorf("more than %d bytes", maxProfile)
	}
	return data, err
}
