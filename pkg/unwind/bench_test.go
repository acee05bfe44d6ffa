// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// benchFiles are a small, a middling and the largest library.
var benchFiles = []string{"libc", "libcrypto", "libtorch"}

func eachFile(b *testing.B, run func(b *testing.B, f *os.File)) {
	for _, name := range benchFiles {
		b.Run(name, func(b *testing.B) {
			f := open(b, realFile(b, name))
			b.ReportAllocs()
			run(b, f)
		})
	}
}

func BenchmarkExtract(b *testing.B) {
	eachFile(b, func(b *testing.B, f *os.File) {
		rows := 0
		for b.Loop() {
			t, err := Extract(f)
			if err != nil {
				b.Fatal(err)
			}
			rows = len(t.Rows)
		}
		b.ReportMetric(float64(rows), "rows")
	})
}

// BenchmarkCacheHit is what a second attach pays for a library: hashing it,
// reading, checking and validating the entry.
func BenchmarkCacheHit(b *testing.B) {
	eachFile(b, func(b *testing.B, f *os.File) {
		c := openCache(b, filepath.Join(b.TempDir(), "cache"))
		if _, err := c.Table("", f); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := c.Table("", f); err != nil {
				b.Fatal(err)
			}
		}
		if s := c.Stats(); s.Misses != 1 {
			b.Errorf("not all hits: %+v", s)
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	eachFile(b, func(b *testing.B, f *os.File) {
		size, err := regularSize(f)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			s, err := newSource(f, size)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.digest(contentVersion); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDecode reads an entry of 5.2 million rows, as many as all files of
// a PyTorch 1.13 process have together (21 MB).
func BenchmarkDecode(b *testing.B) {
	const pages, perPage = 20000, 260
	t := &Table{Rows: []uint32{0}, Infos: []Info{invalid}}
	for i := range 1000 {
		t.Infos = append(t.Infos, Info{BaseReg: RegSP, Param: int32(i)})
	}
	for range pages {
		t.Pages = append(t.Pages, uint32(len(t.Rows)))
		for i := range uint32(perPage) {
			t.Rows = append(t.Rows, i*15<<infoBits|(1+i))
		}
	}
	t.Pages = append(t.Pages, uint32(len(t.Rows)))
	t.Rows[len(t.Rows)-1] &^= infoMask // invalid
	e := &entry{table: t}
	path := filepath.Join(b.TempDir(), "entry")
	w, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := e.encode(w); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	f := open(b, path)
	b.SetBytes(e.size())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeEntry(f, e.size()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	eachFile(b, func(b *testing.B, f *os.File) {
		t, err := Extract(f)
		if err != nil {
			b.Fatal(err)
		}
		random := rand.New(rand.NewPCG(5, 6))
		addrs := make([]uint64, 1<<12)
		for i := range addrs {
			addrs[i] = random.Uint64N(uint64(len(t.Pages)-1) << pageBits)
		}
		i := 0
		for b.Loop() {
			t.Lookup(addrs[i%len(addrs)])
			i++
		}
	})
}
