// SPDX-License-Identifier: Apache-2.0

// Package golden compares output with files under testdata that are reviewed
// like code. It is apart from testutil because it registers the test flag
// -update, which rewrites those files.
package golden

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files with what the tests got")

// Compare fails the test unless got equals the file at path, relative to the
// test's folder. With -update it writes the file instead.
func Compare(tb testing.TB, path string, got []byte) {
	tb.Helper()
	if *update {
		if err := write(path, got); err != nil {
			tb.Fatalf("updating %q: %v", path, err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		tb.Fatalf("reading %q: it does not exist (create it with: go test -run '^%s$' -update)", path, tb.Name())
	}
	if err != nil {
		tb.Fatalf("reading %q: %v", path, err)
	}
	if !bytes.Equal(want, got) {
		tb.Errorf("%s differs (-want +got; accept with -update):\n%s", path, cmp.Diff(string(want), string(got)))
	}
}

func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
