// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// recorder is a testing.TB that keeps the first complaint.
type recorder struct {
	testing.TB
	complaint string
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "TestX" }
func (r *recorder) Errorf(format string, args ...any) {
	r.complaint = fmt.Sprintf(format, args...)
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.complaint = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func complaint(path, got string) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Compare(r, path, []byte(got))
	}()
	<-done
	return r.complaint
}

func TestCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "x.golden")
	if got := complaint(path, "a\n"); !strings.Contains(got, "-run '^TestX$' -update") {
		t.Errorf("missing file: %q, want the command that creates it", got)
	}
	old := *update
	*update = true
	got := complaint(path, "a\n")
	*update = old
	if got != "" {
		t.Errorf("updating: %q", got)
	}
	if got := complaint(path, "a\n"); got != "" {
		t.Errorf("equal: %q", got)
	}
	if got := complaint(path, "b\n"); !strings.Contains(got, "differs") {
		t.Errorf("different: %q", got)
	}
}
