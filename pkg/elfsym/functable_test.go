// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym/elftest"
)

func TestFindPrefersReadableNames(t *testing.T) {
	f := openFile(t, buildSymbols(t))
	tab, err := f.FuncTable()
	if err != nil {
		t.Fatal(err)
	}
	syms, err := f.Lookup("aliased", "exported", "hidden_static", "indirect", "partially_cold", "partially_cold.cold")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range syms {
		for _, v := range []uint64{s.Value, s.Value + s.Size - 1} {
			got, ok := tab.Find(v, nil)
			if !ok || got.Name != name || got.Value != s.Value || got.Size != s.Size {
				t.Errorf("%#x is in %+v (%v), want %s", v, got, ok, name)
			}
		}
	}
	if got, ok := tab.Find(0, nil); ok {
		t.Errorf("address 0 is in %+v", got)
	}
}

func TestFindSizeless(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the functions without a size are written in x86-64 assembly")
	}
	for _, flags := range [][]string{nil, {"-s"}} {
		f := openFile(t, buildSymbols(t, flags...))
		tab, err := f.FuncTable()
		if err != nil {
			t.Fatal(err)
		}
		syms, err := f.Lookup("sizeless", "typeless")
		if err != nil {
			t.Fatal(err)
		}
		start, next := syms["sizeless"].Value, syms["typeless"].Value
		if got, ok := tab.Find(next-1, nil); !ok || got.Name != "sizeless" || got.Value != start {
			t.Errorf("flags %v: %#x is in %+v (%v), want sizeless", flags, next-1, got, ok)
		}
		// Behind it there is code without unwind information, hence of nobody.
		if got, ok := tab.Find(next+2, nil); ok {
			t.Errorf("flags %v: %#x is in %+v, want nothing", flags, next+2, got)
		}
	}
}

// TestFindInDebugFile has symbols in one file and unwind ranges in the other.
func TestFindInDebugFile(t *testing.T) {
	lib := buildSymbols(t)
	run(t, filepath.Dir(lib), "objcopy", "--only-keep-debug", lib, "debug")
	debug := openFile(t, filepath.Join(filepath.Dir(lib), "debug"))
	tab, err := debug.FuncTable()
	if err != nil {
		t.Fatal(err)
	}
	main := openFile(t, lib)
	syms, err := main.Lookup("hidden_static", "sizeless")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range syms {
		if got, ok := tab.Find(s.Value+1, main); !ok || got.Name != name {
			t.Errorf("%#x is in %+v (%v), want %s", s.Value+1, got, ok, name)
		}
	}
}

// TestFindAgainstLinearSearch compares Find with the definition on a random
// table: the row with the highest start, then of the smallest size, that covers
// the address.
func TestFindAgainstLinearSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []byte("\x00a\x00")
	for round := range 200 {
		b := newELF()
		b.section(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0x1000, make([]byte, 4096))
		tab := make([]byte, symSize)
		type span struct{ lo, hi uint64 }
		var spans []span
		for range 1 + r.IntN(40) {
			lo := 0x1000 + uint64(r.IntN(200))
			s := span{lo, lo + 1 + uint64(r.IntN(60))}
			spans = append(spans, s)
			tab = append(tab, elftest.Symbol(1, elf.STT_FUNC, elf.STB_GLOBAL, 1, s.lo, s.hi-s.lo)...)
		}
		b.section(".strtab", elf.SHT_STRTAB, 0, 0, names)
		b.symtab(".symtab", elf.SHT_SYMTAB, tab, ".strtab")
		f := b.open(t)
		ft, err := f.FuncTable()
		if err != nil {
			t.Fatal(err)
		}
		for v := uint64(0xff0); v < 0x1200; v++ {
			var start uint64
			for _, s := range spans {
				if s.lo <= v && v < s.hi {
					start = max(start, s.lo)
				}
			}
			got, ok := ft.Find(v, nil)
			if ok != (start != 0) || ok && got.Value != start {
				t.Fatalf("round %d: %#x is in %#x (%v), want %#x", round, v, got.Value, ok, start)
			}
		}
	}
}

func TestCompareAliases(t *testing.T) {
	sym := func(name string, bind elf.SymBind) Symbol {
		return Symbol{Name: name, Bind: bind, Type: elf.STT_FUNC}
	}
	for _, c := range []struct{ better, worse Symbol }{
		{sym("malloc", elf.STB_GLOBAL), sym("__libc_malloc", elf.STB_GLOBAL)},
		{sym("read", elf.STB_WEAK), sym("__read", elf.STB_GLOBAL)},
		{sym("puts", elf.STB_WEAK), sym("_IO_puts", elf.STB_GLOBAL)},
		{sym("_exit", elf.STB_GLOBAL), sym("helper", elf.STB_LOCAL)},
		{sym("memmove", elf.STB_GLOBAL), sym("memcpy", elf.STB_WEAK)},
		{sym("cfree", elf.STB_GLOBAL), sym("cfree_long", elf.STB_GLOBAL)},
		{sym("_ZN1aC1Ev", elf.STB_GLOBAL), sym("_ZN1aC2Ev", elf.STB_GLOBAL)},
		{sym("_ZN1a1bEv", elf.STB_GLOBAL), sym("__wrapped", elf.STB_GLOBAL)},
		{sym("named", elf.STB_LOCAL), Symbol{Name: "lbl", Bind: elf.STB_LOCAL}},
	} {
		if compareAliases(c.better, c.worse) >= 0 || compareAliases(c.worse, c.better) <= 0 {
			t.Errorf("%q is not preferred to %q", c.better.Name, c.worse.Name)
		}
	}
}
