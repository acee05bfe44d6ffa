// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// buildInline builds testdata/elf/inline.cc.
func buildInline(tb testing.TB, flags ...string) string {
	tb.Helper()
	return testutil.BuildC(tb, []string{"testdata/elf/inline.cc"}, flags...)
}

// buildSymbols builds testdata/elf/symbols.c into a shared library.
func buildSymbols(tb testing.TB, flags ...string) string {
	tb.Helper()
	return testutil.BuildC(tb, []string{"testdata/elf/symbols.c"}, append([]string{"-shared", "-fPIC"}, flags...)...)
}

// run executes a tool.
func run(tb testing.TB, args ...string) {
	tb.Helper()
	testutil.RequireTool(tb, args[0])
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("running %v: %v\n%s", args, err, out)
	}
}

// split moves a file's symbols and debug information into a debug file of the
// same folder, as packagers do, and returns the latter.
func split(tb testing.TB, file string) string {
	tb.Helper()
	debug := file + ".debug"
	run(tb, "objcopy", "--only-keep-debug", file, debug)
	run(tb, "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, file)
	return debug
}

func buildIDOf(tb testing.TB, file string) string {
	tb.Helper()
	return openELF(tb, file).BuildID()
}

// openELF opens an ELF file for the length of a test.
func openELF(tb testing.TB, file string) *elfsym.File {
	tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	st, err := f.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	e, err := elfsym.Open(f, st.Size())
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// root stands for the target's root: it has the files named, wherever they are.
type root map[string]string

func (r root) open(path string) (*os.File, error) {
	if real, ok := r[path]; ok {
		return os.Open(real)
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// errNotThere is for openers that must not be asked.
var errNotThere = errors.New("not asked for")

func abs(tb testing.TB, path string) string {
	tb.Helper()
	a, err := filepath.Abs(path)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
