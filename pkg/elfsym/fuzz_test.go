// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym/elftest"
)

// fuzzFile tries a whole file.
func fuzzFile(_ *testing.T, b []byte) {
	if f, err := Open(bytes.NewReader(b), int64(len(b))); err == nil {
		exercise(f)
	}
}

func FuzzFile(f *testing.F) {
	for _, path := range []string{buildSymbols(f, "-g0"), buildSymbols(f, "-g0", "-s", "-Wl,--hash-style=sysv"), buildMiniDebug(f)} {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, c := range hostileTables() {
		f.Add(c.file)
	}
	f.Fuzz(fuzzFile)
}

func FuzzNotes(f *testing.F) {
	f.Add(elftest.Note("GNU", 3, []byte{1, 2, 3, 4}), uint64(0))
	desc := append(make([]byte, 24), "provider\x00name\x008@%rdi\x00"...)
	f.Add(append(elftest.Note("other", 1, nil), elftest.Note("stapsdt", 3, desc)...), uint64(0x1000))
	f.Fuzz(func(t *testing.T, b []byte, base uint64) {
		total := 0
		eachNote(b, 4, func(n note) bool {
			total += 12 + len(n.desc)
			parseSDT(n.desc, base)
			return true
		})
		if total > len(b) {
			t.Errorf("notes of %d bytes in %d", total, len(b))
		}
		eachNote(b, 8, func(note) bool { return true })
	})
}

// FuzzFrames puts an .eh_frame_hdr and an .eh_frame into a file.
func FuzzFrames(f *testing.F) {
	src := openFile(f, buildSymbols(f))
	hdr, err := src.Section(".eh_frame_hdr")
	if err != nil {
		f.Fatal(err)
	}
	frame, err := src.Section(".eh_frame")
	if err != nil {
		f.Fatal(err)
	}
	s, _ := src.sectionNamed(".eh_frame_hdr")
	f.Add(hdr, frame, uint16(0x1180-s.addr))
	f.Fuzz(func(t *testing.T, hdr, frame []byte, at uint16) {
		b := newELF()
		base := ehdrSize + uint64(phdrSize)
		size := uint64(len(hdr)+7)&^7 + uint64(len(frame))
		b.Prog(elf.PT_LOAD, elf.PF_R, base, 0x2000, size, size)
		b.section(".eh_frame_hdr", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x2000, hdr)
		b.section(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x2000+uint64(len(hdr)+7)&^7, frame)
		v := 0x2000 + uint64(int64(int16(at)))
		if lo, hi, ok := b.open(t).FunctionRange(v); ok && (v < lo || v >= hi) {
			t.Errorf("range of %#x is %#x-%#x", v, lo, hi)
		}
	})
}

// FuzzSymbols puts symbols, names and a hash table into a file.
func FuzzSymbols(f *testing.F) {
	src := openFile(f, buildSymbols(f, "-Wl,--hash-style=both"))
	var parts [][]byte
	for _, name := range []string{".dynsym", ".dynstr", ".gnu.hash", ".hash"} {
		b, err := src.Section(name)
		if err != nil {
			f.Fatal(err)
		}
		parts = append(parts, b)
	}
	f.Add(parts[0], parts[1], parts[2], true)
	f.Add(parts[0], parts[1], parts[3], false)
	f.Fuzz(func(t *testing.T, syms, names, hash []byte, gnu bool) {
		b := newELF()
		b.section(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0x1000, make([]byte, 1024))
		b.section(".dynstr", elf.SHT_STRTAB, 0, 0, names)
		b.symtab(".dynsym", elf.SHT_DYNSYM, syms, ".dynstr")
		b.symtab(".symtab", elf.SHT_SYMTAB, syms, ".dynstr")
		typ := elf.SHT_HASH
		if gnu {
			typ = elf.SHT_GNU_HASH
		}
		b.section(".hash", typ, 0, 0, hash)
		file := b.open(t)
		exercise(file)
		if _, ok := file.sectionIndexAt(0x1000); !ok {
			t.Error("the text section is lost")
		}
	})
}

func FuzzXZ(f *testing.F) {
	packed, err := openFile(f, buildMiniDebug(f)).Section(".gnu_debugdata")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add(xzHugeDict())
	const limit = 1 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unxz(b, limit); err == nil && len(out) > limit {
			t.Errorf("%d bytes, limit %d", len(out), limit)
		}
	})
}

func FuzzDecompress(f *testing.F) {
	f.Add(zeros(1), uint64(elf.COMPRESS_ZLIB), uint64(1<<20))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0, 9, 0, 0, 'x'}, uint64(elf.COMPRESS_ZSTD), uint64(1))
	const limit = 4 << 20
	f.Fuzz(func(t *testing.T, b []byte, typ, size uint64) {
		e := newELF()
		content := le.AppendUint64(nil, typ)
		content = le.AppendUint64(content, size)
		content = append(le.AppendUint64(content, 1), b...)
		e.section(".debug_info", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, 0, content)
		var out bytes.Buffer
		n, err := e.open(t).Decompress(".debug_info", &out, limit)
		if n > limit || int64(out.Len()) != n || err == nil && uint64(n) != size {
			t.Errorf("%d of %d bytes, limit %d: %v", n, size, limit, err)
		}
	})
}
