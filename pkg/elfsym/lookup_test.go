// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	names := []string{
		"exported", "aliased", "__aliased", "weak_aliased", "indirect", "an_object", "a_thread_variable",
		"sizeless", "typeless", "hidden_static", "chosen", "partially_cold.cold", // the last three in .symtab only
		"abort", "malloc", "no_such_name", "", "x", // imported or absent
	}
	dynamic := []string{
		"__aliased", "a_thread_variable", "aliased", "an_object", "exported", "indirect", "sizeless", "typeless", "weak_aliased",
	}
	all := append([]string{"chosen", "hidden_static", "partially_cold.cold"}, dynamic...)
	slices.Sort(all)
	for _, c := range []struct {
		name  string
		flags []string
		cut   bool // the section table
		want  []string
	}{
		{"gnu hash", nil, false, all},
		{"sysv hash", []string{"-Wl,--hash-style=sysv"}, false, all},
		{"both hashes", []string{"-Wl,--hash-style=both"}, false, all},
		{"stripped", []string{"-s"}, false, dynamic},
		{"no section table", nil, true, dynamic},
		{"no section table, sysv hash", []string{"-Wl,--hash-style=sysv"}, true, dynamic},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := buildSymbols(t, c.flags...)
			if c.cut {
				dropSectionTable(t, path)
			}
			got, err := openFile(t, path).Lookup(names...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, slices.Sorted(maps.Keys(got))); d != "" {
				t.Errorf("names (-want +got):\n%s", d)
			}
			if s := got["indirect"]; s.Type != elf.STT_GNU_IFUNC || s.Bind != elf.STB_GLOBAL {
				t.Errorf("indirect is %v %v", s.Type, s.Bind)
			}
			if s := got["an_object"]; s.Type != elf.STT_OBJECT || s.Size != 16 {
				t.Errorf("an_object is %v of %d bytes", s.Type, s.Size)
			}
			if s := got["a_thread_variable"]; s.Type != elf.STT_TLS || s.Size != 4 {
				t.Errorf("a_thread_variable is %v of %d bytes", s.Type, s.Size)
			}
			if got["aliased"].Value != got["__aliased"].Value {
				t.Error("aliases differ in value")
			}
		})
	}
}

// TestLookupAgreesWithSymbols looks up each name of real files.
func TestLookupAgreesWithSymbols(t *testing.T) {
	for _, path := range append(systemFiles(t), buildSymbols(t)) {
		f := openFile(t, path)
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		byName := make(map[string]map[uint64]bool)
		for _, s := range syms {
			if byName[s.Name] == nil {
				byName[s.Name] = make(map[uint64]bool)
			}
			byName[s.Name][s.Value] = true
		}
		names := slices.Sorted(maps.Keys(byName))
		step := max(1, len(names)/3000)
		var some []string
		for i := 0; i < len(names); i += step {
			some = append(some, names[i])
		}
		got, err := f.Lookup(some...)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range some {
			if s, ok := got[n]; !ok || !byName[n][s.Value] && s.Type != elf.STT_TLS {
				t.Errorf("%s: %s: found %v at %#x", path, n, ok, s.Value)
			}
		}
	}
}

// TestLookupDefaultVersion wants the symbol version that a new program binds.
func TestLookupDefaultVersion(t *testing.T) {
	for _, path := range systemFiles(t) {
		want, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		syms, _ := want.DynamicSymbols()
		f := openFile(t, path)
		tested := 0
		for _, s := range syms {
			if s.Section == elf.SHN_UNDEF || s.Section >= elf.SHN_LORESERVE || !s.HasVersion || s.VersionIndex.IsHidden() {
				continue
			}
			if tested++; tested > 4000 {
				break
			}
			got, err := f.Lookup(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got[s.Name].Value != s.Value {
				t.Errorf("%s: %s@@%s found at %#x, want %#x", path, s.Name, s.Version, got[s.Name].Value, s.Value)
			}
		}
	}
}

func TestTailMatcher(t *testing.T) {
	long := strings.Repeat("n", 300)
	m := newTailMatcher([]string{"malloc", "alloc", "c", long, ""})
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"malloc", []string{"0:malloc", "1:alloc", "5:c"}},
		{"\x00calloc", []string{"2:alloc", "6:c"}},
		{"\x00xmalloc@@GLIBC_2.2.5", []string{"2:malloc", "3:alloc", "7:c"}},
		{"malloc@\x00free", nil},
		{"loc", []string{"2:c"}},
		{"", nil},
		{"@", nil},
		{long, []string{"0:" + long}},
	} {
		var got []string
		m.match([]byte(c.in), func(off int, name string) { got = append(got, fmt.Sprintf("%d:%s", off, name)) })
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.in, d)
		}
	}
}
