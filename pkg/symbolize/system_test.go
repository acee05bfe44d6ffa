// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestSystemFiles compares a sample of the addresses of what happens to be
// installed: CPythons with link-time and profile-guided optimisation, Rust's
// standard library, Go programs, the C library with Debian's debug package.
func TestSystemFiles(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, pattern := range []string{
		"/usr/lib/*-linux-gnu/libc.so.6",
		home + "/.pyenv/versions/3.6*/lib/libpython3.6*.so.1.0",
		home + "/.pyenv/versions/3.13*/lib/libpython3.13.so.1.0",
		home + "/.rustup/toolchains/stable-*/lib/rustlib/*/lib/libstd-*.so",
		"/usr/local/bin/docker",
		"/usr/bin/node",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Logf("%s is not there", pattern)
			continue
		}
		t.Run(filepath.Base(files[0]), func(t *testing.T) {
			if compareSystemFile(t, files[0]) {
				tested++
			}
		})
	}
	if tested == 0 {
		testutil.Skipf(t, "none of the files has debug information (try: apt-get install libc6-dbg)")
	}
}

// compareSystemFile compares some 2000 addresses of a file with what
// llvm-symbolizer says, and reports whether the file has debug information.
func compareSystemFile(t *testing.T, file string) bool {
	oracle := file
	if id := buildIDOf(t, file); id != "" {
		if p := buildIDPath(id); exists(p) {
			oracle = p
		}
	}
	addrs := textAddrs(t, oracle, 7)
	if len(addrs) == 0 {
		return false
	}
	var some []uint64
	for i := range 2000 {
		some = append(some, addrs[i*len(addrs)/2000])
	}
	s := New(openMapping, Options{OpenDebug: func(p string) (*os.File, error) { return os.Open(p) }})
	defer s.Close()
	got := places(t, s, file, some)
	for _, err := range s.Errors() {
		t.Error(err)
	}
	diff(t, "llvm-symbolizer", some, got, askLLVM(t, oracle, some), byAddress(symbolValues(t, file, oracle)))
	return true
}

// byAddress shows names by what they stand for: many can be of one address, and
// everybody chooses another.
func byAddress(values map[string]uint64) func(place) string {
	return func(p place) string {
		name, _, _ := strings.Cut(p.name, "@")
		if v, ok := values[name]; ok {
			p.name = fmt.Sprintf("%#x", v)
		}
		return exactly(p)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// symbolValues returns the addresses of the function symbols of files.
func symbolValues(tb testing.TB, files ...string) map[string]uint64 {
	tb.Helper()
	values := make(map[string]uint64)
	for _, file := range files {
		f, err := elf.Open(file)
		if err != nil {
			tb.Fatal(err)
		}
		defer f.Close()
		static, _ := f.Symbols()
		dyn, _ := f.DynamicSymbols()
		for _, s := range append(static, dyn...) {
			name, _, _ := strings.Cut(s.Name, "@")
			if t := elf.ST_TYPE(s.Info); (t == elf.STT_FUNC || t == elf.STT_GNU_IFUNC) && s.Section != elf.SHN_UNDEF {
				values[name] = s.Value
			}
		}
	}
	return values
}
