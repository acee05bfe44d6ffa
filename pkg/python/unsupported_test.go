// SPDX-License-Identifier: Apache-2.0

package python

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// oldPythons returns the interpreters of a pyenv that are too old, 2.7 among
// them, by version.
func oldPythons(t *testing.T) map[string]string {
	t.Helper()
	root := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); err == nil && root == "" {
		root = filepath.Join(home, ".pyenv")
	}
	found := make(map[string]string)
	for _, pattern := range []string{"2.7.*", "3.[678].*"} {
		paths, _ := filepath.Glob(filepath.Join(root, "versions", pattern, "bin/python"))
		for _, p := range paths {
			found[filepath.Base(filepath.Dir(filepath.Dir(p)))] = p
		}
	}
	return found
}

func TestFindUnsupportedVersion(t *testing.T) {
	old := oldPythons(t)
	if len(old) == 0 {
		t.Skip("a CPython older than 3.9 is missing (pyenv install 3.8)")
	}
	for version, path := range old {
		t.Run(version, func(t *testing.T) {
			target := testutil.Start(t, path, "-c", "import sys; print('READY'); sys.stdout.flush(); sys.stdin.readline()")
			target.WaitLine("READY")
			_, err := find(t, openProcess(t, target.PID()))
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) {
				t.Fatalf("error = %v, want an UnsupportedError", err)
			}
			if got := unsupported.Version.String(); got != version {
				t.Errorf("version = %s, want %s", got, version)
			}
			if !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "older than 3.9") {
				t.Errorf("the error does not tell the version and the reason: %v", err)
			}
		})
	}
}

func TestFindNoPython(t *testing.T) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	target := testutil.Start(t, cat)
	target.Send("READY")
	target.WaitLine("READY")
	if _, err := find(t, openProcess(t, target.PID())); !errors.Is(err, ErrNoPython) {
		t.Errorf("error = %v, want ErrNoPython", err)
	}
}
