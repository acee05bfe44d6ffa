// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// ForkyRoot is where .ci/deps.sh bootstraps Debian's suite forky for its
	// CPython 3.14, whose interpreter is built with tail calls. Run by chroot it
	// is also the target in another root.
	ForkyRoot = rootPrefix + "forky"

	// rootPrefix begins the names of the roots that .ci/deps.sh makes, one for
	// each release of which it wants the CPython.
	rootPrefix = "/var/tmp/unfreed-"

	// minPythonMinor is the oldest CPython 3 that unfreed reads frames of.
	minPythonMinor = 9
	// minPythons is how many versions (minor ones) a strict run must test.
	minPythons = 3
)

// Python is a CPython of this machine.
type Python struct {
	Version string   // "3.11.2"
	Minor   int      // 11
	Path    string   // of the interpreter, inside Chroot if that is set
	Args    []string // command prefix that runs it: "chroot", the root and Path, or just Path
	Chroot  string   // root it must be run in; empty for the machine's own
}

// String names the interpreter, fit for a subtest.
func (p *Python) String() string {
	kind := "system"
	switch {
	case p.Chroot != "":
		kind = "chroot"
	case strings.Contains(p.Path, "/versions/"):
		kind = "pyenv"
	}
	return p.Version + "-" + kind
}

// Command returns a command that runs the interpreter with arguments.
func (p *Python) Command(args ...string) *exec.Cmd {
	argv := append(slices.Clone(p.Args), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	return cmd
}

// Start starts the interpreter with arguments as a target. Files among them
// must have gone through [Python.File] or [Python.Dir].
func (p *Python) Start(tb testing.TB, args ...string) *Target {
	tb.Helper()
	return StartCmd(tb, p.Command(args...))
}

// File makes a file of this machine visible to the interpreter and returns its
// path as the interpreter sees it. For one in another root it is a copy, which
// is removed when the test ends.
func (p *Python) File(tb testing.TB, path string) string {
	tb.Helper()
	path = Path(tb, path)
	if p.Chroot == "" {
		return path
	}
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("reading %q: %v", path, err)
	}
	dir := p.TempDir(tb)
	if err := os.WriteFile(filepath.Join(p.Chroot, dir, filepath.Base(path)), data, 0o755); err != nil {
		tb.Fatalf("copying %q into %q: %v", path, p.Chroot, err)
	}
	return filepath.Join(dir, filepath.Base(path))
}

// Dir is [Python.File] for a folder of scripts that import one another.
func (p *Python) Dir(tb testing.TB, path string) string {
	tb.Helper()
	path = Path(tb, path)
	if p.Chroot == "" {
		return path
	}
	dir := p.TempDir(tb)
	if err := os.CopyFS(filepath.Join(p.Chroot, dir), os.DirFS(path)); err != nil {
		tb.Fatalf("copying %q into %q: %v", path, p.Chroot, err)
	}
	return dir
}

// TempDir returns a new folder, as the interpreter sees it, that is removed
// when the test ends. This machine sees it at Chroot + the folder.
func (p *Python) TempDir(tb testing.TB) string {
	tb.Helper()
	if p.Chroot == "" {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(filepath.Join(p.Chroot, "tmp"), "unfreed-test-")
	if err != nil {
		tb.Fatalf("making a folder in %q: %v", p.Chroot, err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return strings.TrimPrefix(dir, p.Chroot)
}

// Pythons returns every CPython that is at least 3.9: those of a pyenv, the
// distribution's, and those of the roots that .ci/deps.sh makes; sorted by version. The test is
// skipped if there is none, and fails if CI=1 or [Strict] and fewer than three
// versions (minor ones) were found.
func Pythons(tb testing.TB) []Python {
	tb.Helper()
	var found []Python
	seen := map[string]bool{}
	for _, path := range candidates() {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		found = appendPython(tb, found, Python{Path: path, Args: []string{path}})
	}
	found = appendRoots(tb, found)

	slices.SortFunc(found, func(a, b Python) int {
		return cmp.Or(cmp.Compare(a.Minor, b.Minor), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Path, b.Path))
	})
	minors := map[int]bool{}
	for _, p := range found {
		minors[p.Minor] = true
	}
	if (Strict() || os.Getenv("CI") == "1") && len(minors) < minPythons {
		tb.Fatalf("found %d versions of CPython >= 3.%d (%v), CI needs %d (install more with pyenv or .ci/deps.sh)",
			len(minors), minPythonMinor, found, minPythons)
	}
	if len(found) == 0 {
		tb.Skipf("a CPython >= 3.%d is missing", minPythonMinor)
	}
	return found
}

// appendRoots adds the interpreters of other roots, or logs why it cannot.
func appendRoots(tb testing.TB, found []Python) []Python {
	tb.Helper()
	if _, err := os.Stat(ForkyRoot); err != nil {
		tb.Logf("skipping CPython 3.14: no %s (.ci/deps.sh makes it)", ForkyRoot)
	}
	if os.Geteuid() != 0 {
		tb.Log("skipping the CPythons of other roots: root is missing, which chroot needs")
		return found
	}
	paths, _ := filepath.Glob(rootPrefix + "*/usr/bin/python3.[0-9]*")
	for _, path := range paths {
		root, name, _ := strings.Cut(path, "/usr/bin/")
		if !interpreterName.MatchString(name) {
			continue
		}
		inside := "/usr/bin/" + name
		found = appendPython(tb, found, Python{Path: inside, Chroot: root, Args: []string{"chroot", root, inside}})
	}
	return found
}

// interpreterName leaves out python3.11-config and the like.
var interpreterName = regexp.MustCompile(`^python3\.\d+$`)

// appendPython asks an interpreter what it is and adds it if it is a CPython
// new enough.
func appendPython(tb testing.TB, found []Python, p Python) []Python {
	tb.Helper()
	const ask = "import platform,sys;print(platform.python_implementation(),'%d.%d.%d'%sys.version_info[:3])"
	out, err := p.Command("-c", ask).Output()
	if err != nil {
		tb.Logf("skipping %s: %v", strings.Join(p.Args, " "), err)
		return found
	}
	var implementation string
	var major, micro int
	if _, err := fmt.Sscanf(string(out), "%s %d.%d.%d", &implementation, &major, &p.Minor, &micro); err != nil {
		tb.Logf("skipping %s: reading its version %q: %v", strings.Join(p.Args, " "), out, err)
		return found
	}
	if implementation != "CPython" || major != 3 || p.Minor < minPythonMinor {
		return found
	}
	p.Version = fmt.Sprintf("%d.%d.%d", major, p.Minor, micro)
	return append(found, p)
}

// candidates lists the interpreters of this root, some of which may be broken,
// too old or the same.
func candidates() []string {
	roots := []string{os.Getenv("PYENV_ROOT")}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".pyenv"))
	}
	if out, err := exec.Command("pyenv", "root").Output(); err == nil {
		roots = append(roots, strings.TrimSpace(string(out)))
	}
	var paths []string
	for _, root := range roots {
		if root == "" {
			continue
		}
		m, _ := filepath.Glob(filepath.Join(root, "versions", "3.*", "bin", "python3"))
		paths = append(paths, m...)
	}
	for _, pattern := range []string{"/usr/bin/python3.[0-9]", "/usr/bin/python3.[0-9][0-9]"} {
		m, _ := filepath.Glob(pattern)
		paths = append(paths, m...)
	}
	return paths
}

// RequireTorch returns a Python that can import torch: the one that Debian's
// python3-torch belongs to.
func RequireTorch(tb testing.TB) string {
	tb.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		Skipf(tb, "torch is not installed for %s (apt install python3-torch): %v", python, err)
	}
	return python
}
