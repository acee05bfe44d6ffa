// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Root returns the repository's root: the nearest parent of the working
// directory that has a go.mod.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatalf("finding the working directory: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("finding go.mod: the test does not run inside the repository")
		}
		dir = parent
	}
}

// Path returns the absolute path of a file given relative to the repository's
// root. Absolute paths are returned as they are.
func Path(tb testing.TB, rel string) string {
	tb.Helper()
	if filepath.IsAbs(rel) {
		return rel
	}
	return filepath.Join(Root(tb), rel)
}

// BuildC compiles C or C++ sources, given relative to the repository's root or
// absolute, into a program in a folder of the test's own and returns its path.
// It is BuildWith using gcc, or g++ if the first source is a .cc file.
func BuildC(tb testing.TB, sources []string, flags ...string) string {
	tb.Helper()
	compiler := "gcc"
	if len(sources) > 0 && filepath.Ext(sources[0]) == ".cc" {
		compiler = "g++"
	}
	return BuildWith(tb, compiler, sources, flags...)
}

// BuildWith compiles as [BuildC] does, with a named compiler. The flags come
// behind the sources, so that libraries can be named, and behind -O2 -g -pthread
// and warnings as errors, so that they override those. With -shared the result
// is libNAME.so, else NAME, for NAME the first source's base name.
//
// A test binary compiles the same input once, however many tests ask for it;
// each gets its own copy, which it may delete, strip or replace.
func BuildWith(tb testing.TB, compiler string, sources []string, flags ...string) string {
	tb.Helper()
	RequireTool(tb, compiler)
	args := []string{"-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"}
	for _, s := range sources {
		args = append(args, Path(tb, s))
	}
	args = append(args, flags...)
	base := filepath.Base(sources[0])
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if slices.Contains(flags, "-shared") {
		name = "lib" + name + ".so"
	}

	key := strings.Join(append([]string{compiler}, args...), "\x00")
	b, _ := builds.LoadOrStore(key, &build{})
	image, err := b.(*build).run(compiler, args)
	if err != nil {
		tb.Fatalf("compiling %s: %v", base, err)
	}
	out := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(out, image, 0o755); err != nil {
		tb.Fatalf("writing %s: %v", name, err)
	}
	return out
}

// builds memoizes compilations by command line: *build by string.
var builds sync.Map

// build is one compilation, done at most once. The result is kept in memory,
// since it outlives the folder of the test that asked first.
type build struct {
	once  sync.Once
	image []byte
	err   error
}

func (b *build) run(compiler string, args []string) ([]byte, error) {
	b.once.Do(func() { b.image, b.err = compile(compiler, args) })
	return b.image, b.err
}

func compile(compiler string, args []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "unfreed-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out")
	cmd := exec.Command(compiler, append(args, "-o", out)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s: %w\n%s", cmd, err, &stderr)
	}
	return os.ReadFile(out)
}
