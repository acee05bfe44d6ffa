// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// targetSources lists the C targets of testdata/targets/c that consist of more
// than NAME.c.
var targetSources = map[string][]string{
	"allfuncs":  {"allfuncs.c", "allfuncs_heap.c", "allfuncs_maps.c"},
	"newdelete": {"newdelete.cc"},
	"randops":   {"randops.c", "randops_sites.c"},
}

// targetFlags lists what a target needs in order to be what its header says.
var targetFlags = map[string][]string{
	"bumpalloc": {"-shared", "-fPIC", "-Wl,-soname,libmimalloc.so.2"},
	"latelib":   {"-shared", "-fPIC"},
	"nolibc":    {"-nostdlib", "-static", "-fno-stack-protector"},
	"wrap":      {"-shared", "-fPIC"},
}

// BuildTarget compiles a target of testdata/targets/c by its name, with flags on
// top of those it needs, and returns the program's or library's path. What the
// target does and prints is said at the head of its source.
func BuildTarget(tb testing.TB, name string, flags ...string) string {
	tb.Helper()
	return BuildC(tb, sourcesOf(tb, name), slices.Concat(targetFlags[name], flags)...)
}

// BuildTargetWith is [BuildTarget] with a named compiler.
func BuildTargetWith(tb testing.TB, compiler, name string, flags ...string) string {
	tb.Helper()
	return BuildWith(tb, compiler, sourcesOf(tb, name), slices.Concat(targetFlags[name], flags)...)
}

func sourcesOf(tb testing.TB, name string) []string {
	tb.Helper()
	files := targetSources[name]
	if files == nil {
		files = []string{name + ".c"}
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, Path(tb, filepath.Join("testdata/targets/c", f)))
	}
	return paths
}

// Site is what a target knows of the allocations that one of its functions, the
// site, made by one allocation function. Objects and bytes are outstanding, all
// numbers count from the target's READY on.
type Site struct {
	Site       string `json:"site"`        // name of the C function, the innermost such in the stack
	Function   string `json:"function"`    // the allocation function that it calls
	Objects    int64  `json:"objects"`     // a mapping is one while any of it is left
	Bytes      int64  `json:"bytes"`       // as asked for
	Allocs     int64  `json:"allocs"`      // calls that succeeded
	AllocBytes int64  `json:"alloc_bytes"` // bytes of those
	Failed     int64  `json:"failed"`      // calls that did not
}

// Totals is what a target knows of all its sites together.
type Totals struct {
	Allocations    int64 `json:"allocations"`
	Frees          int64 `json:"frees"`           // of what was allocated after READY, heap only
	FreesUnmatched int64 `json:"frees_unmatched"` // of what was allocated before
	FailedCalls    int64 `json:"failed_calls"`
	// ThreadExits is the number of threads that ended. On each, glibc frees
	// what its thread cache holds a second time, so that more frees than
	// FreesUnmatched match nothing.
	ThreadExits int64 `json:"thread_exits"`
}

// Sites waits for the target to say what it has outstanding.
func (t *Target) Sites() []Site {
	t.tb.Helper()
	var sites []Site
	t.decode("SITES ", &sites)
	return sites
}

// Totals waits for what the target says of its sites together; it follows
// [Target.Sites], but not in every target.
func (t *Target) Totals() Totals {
	t.tb.Helper()
	var totals Totals
	t.decode("TOTALS ", &totals)
	return totals
}

func (t *Target) decode(marker string, v any) {
	t.tb.Helper()
	line := t.WaitLine(marker)
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, marker)), v); err != nil {
		t.tb.Fatalf("reading the target's %s: %v", strings.TrimSpace(marker), err)
	}
}
