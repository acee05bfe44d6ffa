// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// NoLeakedFDs fails the test if it ends with file descriptors open that were
// not at this call. Call it first, so that the check comes after every other
// cleanup, and not in a parallel test, whose neighbours open files too.
func NoLeakedFDs(tb testing.TB) {
	tb.Helper()
	// The runtime's poller keeps descriptors of its own from its first use on.
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatalf("making a pipe: %v", err)
	}
	r.Close()
	w.Close()
	before := openFDs(tb)
	tb.Cleanup(func() {
		var leaked []string
		for fd, file := range openFDs(tb) {
			if before[fd] != file {
				leaked = append(leaked, fd+" "+file)
			}
		}
		slices.Sort(leaked)
		if len(leaked) > 0 {
			tb.Errorf("leaked %d file descriptors:\n%s", len(leaked), strings.Join(leaked, "\n"))
		}
	})
}

// openFDs returns what each open descriptor of this process refers to.
func openFDs(tb testing.TB) map[string]string {
	tb.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatalf("listing %s: %v", dir, err)
	}
	fds := make(map[string]string, len(entries))
	for _, e := range entries {
		// The descriptor that listed the folder is closed by now.
		if file, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			fds[e.Name()] = file
		}
	}
	return fds
}
