// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BuildExtension compiles testdata/targets/ext/leaky.c as wheels are, without
// symbols and frame pointers, and returns the folder, as the interpreter sees
// it, that must be in PYTHONPATH for `import leaky` to work. It is removed when
// the test ends.
func BuildExtension(tb testing.TB, p Python) string {
	tb.Helper()
	built := BuildC(tb, []string{"testdata/targets/ext/leaky.c"},
		"-fPIC", "-shared", "-fomit-frame-pointer", "-g0", "-s", "-I"+pythonInclude(tb, p))
	image, err := os.ReadFile(built)
	if err != nil {
		tb.Fatalf("reading %q: %v", built, err)
	}
	dir := p.TempDir(tb)
	if err := os.WriteFile(filepath.Join(p.Chroot, dir, "leaky.so"), image, 0o755); err != nil {
		tb.Fatalf("installing the extension: %v", err)
	}
	return dir
}

// pythonInclude returns a folder with Python.h: the interpreter's own, else that
// of Debian's python3-dev, which does as well since the extension keeps to the
// stable ABI.
func pythonInclude(tb testing.TB, p Python) string {
	tb.Helper()
	const ask = "import sysconfig;print(sysconfig.get_paths()['include'])"
	for _, cmd := range []*exec.Cmd{p.Command("-c", ask), exec.Command("/usr/bin/python3", "-c", ask)} {
		out, err := cmd.Output()
		if err != nil {
			continue
		}
		dir := strings.TrimSpace(string(out))
		// A folder of another root is not ours to include from: the headers
		// there go with that root's C library.
		if _, err := os.Stat(filepath.Join(dir, "Python.h")); err == nil {
			return dir
		}
	}
	Skipf(tb, "Python.h is missing (install python3-dev with .ci/deps.sh)")
	return ""
}
