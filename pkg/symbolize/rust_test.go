// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestRust compares a Rust program of both manglings, and wants names without
// hashes.
func TestRust(t *testing.T) {
	rustc := testutil.RequireTool(t, "rustc")
	src := testutil.Path(t, "testdata/elf/inline.rs")
	for mangling, method := range map[string]string{"legacy": "inline::Registry::total", "v0": "<inline::Registry>::total"} {
		t.Run(mangling, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), "inline")
			flags := []string{"-g", "-O", "-C", "symbol-mangling-version=" + mangling, "-C", "codegen-units=2", "-o", exe, src}
			if mangling == "legacy" {
				flags = append([]string{"-Z", "unstable-options"}, flags...)
			}
			run(t, append([]string{"env", "RUSTC_BOOTSTRAP=1", rustc}, flags...)...)
			addrs := textAddrs(t, exe, 200) // mostly of the standard library
			for name, v := range symbolValues(t, exe) {
				if strings.Contains(name, "6inline") {
					for i := range uint64(100) {
						addrs = append(addrs, v+i)
					}
				}
			}
			slices.Sort(addrs)
			addrs = slices.Compact(addrs)
			s := New(openMapping, Options{})
			defer s.Close()
			diff(t, "llvm-symbolizer", addrs, places(t, s, exe, addrs), askLLVM(t, exe, addrs), byAddress(symbolValues(t, exe)))
			for _, err := range s.Errors() {
				t.Error(err)
			}
			found := make(map[string]bool)
			for _, fs := range frames(t, s, exe, addrs) {
				for _, f := range fs {
					found[f.Function] = true
				}
			}
			for _, want := range []string{method, "inline::weigh"} {
				if !found[want] {
					t.Errorf("no function is named %s", want)
				}
			}
		})
	}
}
