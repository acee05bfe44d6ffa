// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym/elftest"
)

// exercise calls everything that a File offers.
func exercise(f *File) error {
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	_, err := f.Lookup("malloc", "exported", "hidden_static", "x")
	keep(err)
	_, err = f.Symbols()
	keep(err)
	_, err = f.DynSymbols()
	keep(err)
	tab, err := f.FuncTable()
	keep(err)
	for _, v := range []uint64{0, 1, 0x1001, 0x1180, 0x11b2, 0x1217, 1 << 47, 1<<64 - 1} {
		tab.Find(v, nil)
		f.FunctionRange(v)
		f.OffsetToVaddr(v)
		f.VaddrToOffset(v)
		_, err := f.ReadVaddr(make([]byte, 64), v)
		keep(err)
	}
	_, err = f.SDTNotes()
	keep(err)
	f.BuildID()
	f.DebugLink()
	f.DebugAltLink()
	for _, name := range []string{".text", ".debug_info", ".debug_str", ".eh_frame"} {
		_, err = f.Section(name)
		keep(err)
		_, err = f.SectionReader(name)
		keep(err)
	}
	if m, err := f.MiniDebug(); err == nil {
		keep(exercise(m))
	} else {
		keep(err)
	}
	return errors.Join(errs...)
}

// allocated returns how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	fn()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

// hostileFile is a file and what is to come of it.
type hostileFile struct {
	name string
	file []byte
	open error // of Open, nil if it opens
	use  error // of exercise, among others
}

// patch returns a copy of b with a little-endian number of n bytes at off.
func patch(b []byte, off, n int, v uint64) []byte {
	c := bytes.Clone(b)
	for i := range n {
		c[off+i] = byte(v >> (8 * i))
	}
	return c
}

func hostileHeaders(lib []byte) []hostileFile {
	shoff := le.Uint64(lib[40:])
	wide := patch(patch(lib, 60, 2, 0), int(shoff)+32, 8, 1<<40) // section count of section 0
	return []hostileFile{
		{"empty", nil, ErrNotELF, nil},
		{"magic only", []byte("\x7fELF"), ErrNotELF, nil},
		{"text", bytes.Repeat([]byte("#!/bin/sh\n"), 20), ErrNotELF, nil},
		{"32 bit", patch(lib, 4, 1, 1), ErrClass, nil},
		{"big-endian", patch(lib, 5, 1, 2), ErrClass, nil},
		{"header only", lib[:64], ErrCorrupt, nil},
		{"program headers beyond the end", patch(lib, 32, 8, 1<<63), ErrCorrupt, nil},
		{"odd program header size", patch(lib, 54, 2, 57), ErrCorrupt, nil},
		{"65534 program headers", patch(lib, 56, 2, 65534), ErrTooLarge, nil},
		{"section headers beyond the end", patch(lib, 40, 8, 1<<63), nil, nil},
		{"section headers at the very end", patch(lib, 40, 8, uint64(len(lib)-1)), nil, nil},
		{"2^40 sections", wide, nil, nil},
		{"no section is the string table", patch(lib, 62, 2, 60000), nil, nil},
		{"segment that wraps around", patch(lib, 64+16, 8, 1<<64-1), ErrCorrupt, nil},
	}
}

// hostileTables are files whose headers are sound and whose tables are not.
func hostileTables() []hostileFile {
	return slices.Concat(hostileSymbols(), hostileHashes(), hostileNotes(), hostileSections())
}

// tableFile makes a file and says what is to come of its use.
func tableFile(name string, use error, build func(b *elfBuilder)) hostileFile {
	b := newELF()
	build(b)
	return hostileFile{name, b.Bytes(), nil, use}
}

// symbolTable returns a table of one function.
func symbolTable(name uint32, size uint64) []byte {
	return slices.Concat(make([]byte, symSize), elftest.Symbol(name, elf.STT_FUNC, elf.STB_GLOBAL, 1, 0x1000, size))
}

func hostileSymbols() []hostileFile {
	file := func(name string, names, symbols []byte) hostileFile {
		return tableFile(name, nil, func(b *elfBuilder) {
			b.section(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0x1000, make([]byte, 64))
			b.section(".strtab", elf.SHT_STRTAB, 0, 0, names)
			b.symtab(".symtab", elf.SHT_SYMTAB, symbols, ".strtab")
		})
	}
	return []hostileFile{
		file("name beyond the string table", []byte("\x00x\x00"), symbolTable(1<<31, 16)),
		file("name without an end", bytes.Repeat([]byte("x"), maxName+100), symbolTable(0, 16)),
		file("symbol of 2^64-1 bytes", []byte("\x00x\x00"), symbolTable(1, 1<<64-1)),
	}
}

// words encodes numbers of 32 bits.
func words(w ...uint32) (b []byte) {
	for _, x := range w {
		b = le.AppendUint32(b, x)
	}
	return b
}

func hostileHashes() []hostileFile {
	file := func(name string, use error, typ elf.SectionType, hash []byte) hostileFile {
		return tableFile(name, use, func(b *elfBuilder) {
			b.section(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0x1000, make([]byte, 64))
			b.section(".dynstr", elf.SHT_STRTAB, 0, 0, []byte("\x00x\x00"))
			b.symtab(".dynsym", elf.SHT_DYNSYM, symbolTable(1, 16), ".dynstr")
			b.section(".hash", typ, 0, 0, hash)
		})
	}
	const gnu, sysv = elf.SHT_GNU_HASH, elf.SHT_HASH
	all := ^uint32(0)
	return []hostileFile{
		file("gnu hash of 3 bytes", ErrCorrupt, gnu, []byte{1, 2, 3}),
		file("gnu hash of no buckets", ErrCorrupt, gnu, words(0, 1, 1, 0, 0, 0)),
		file("gnu hash of no filter", ErrCorrupt, gnu, words(1, 1, 0, 0, 0, 0)),
		file("gnu hash of 2^32-1 buckets", ErrCorrupt, gnu, words(all, 1, 1, 0, all, all)),
		file("gnu hash bucket before the first symbol", ErrCorrupt, gnu, words(1, 9, 1, 0, all, all, 1)),
		file("gnu hash bucket beyond the table", ErrCorrupt, gnu, words(1, 1, 1, 0, all, all, all)),
		file("gnu hash bucket without an end", ErrTooLarge, gnu,
			append(words(1, 1, 1, 0, all, all, 1), make([]byte, 4*(maxChain+1))...)),
		file("sysv hash of no buckets", ErrCorrupt, sysv, words(0, 2, 0, 0)),
		file("sysv hash of 2^32-1 chains", ErrCorrupt, sysv, words(1, all, 1, 0)),
		file("sysv hash in a circle", ErrTooLarge, sysv, words(1, 2, 1, 0, 1)),
		file("sysv hash to no symbol", ErrCorrupt, sysv, words(1, 2, 7, 0, 0)),
	}
}

func hostileNotes() []hostileFile {
	file := func(name string, notes []byte) hostileFile {
		return tableFile(name, nil, func(b *elfBuilder) { b.section(".note.stapsdt", elf.SHT_NOTE, 0, 0, notes) })
	}
	all := ^uint32(0)
	return []hostileFile{
		file("name of 2^32-1 bytes", words(all, 0, 3)),
		file("descriptor of 2^32-1 bytes", words(4, all, 3, 0)),
		file("SDT note of 2 bytes", elftest.Note("stapsdt", 3, []byte{1, 2})),
		file("SDT note without strings", elftest.Note("stapsdt", 3, make([]byte, 24))),
		file("SDT note with half a string", elftest.Note("stapsdt", 3, append(make([]byte, 24), "prov"...))),
	}
}

func hostileSections() []hostileFile {
	mini := func(name string, content []byte) hostileFile {
		return tableFile(name, ErrCorrupt, func(b *elfBuilder) {
			b.section(".gnu_debugdata", elf.SHT_PROGBITS, 0, 0, content)
		})
	}
	packed := func(name string, want error, content []byte) hostileFile {
		return tableFile(name, want, func(b *elfBuilder) {
			b.section(".debug_info", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, 0, content)
		})
	}
	chdr := func(typ, size uint64, content []byte) []byte {
		h := le.AppendUint64(nil, typ)
		h = le.AppendUint64(h, size)
		return append(le.AppendUint64(h, 1), content...)
	}
	hugeWindow := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0}
	return []hostileFile{
		mini("xz that is none", []byte("no xz stream at all")),
		mini("xz with a 4 GiB dictionary", xzHugeDict()),
		packed("compressed section of 2^64-1 bytes", ErrTooLarge, chdr(1, 1<<64-1, zeros(10))),
		packed("compressed section shorter than stated", ErrCorrupt, chdr(1, 1<<27, zeros(10))),
		packed("compressed section of garbage", ErrCorrupt, chdr(1, 100, []byte("garbage, not zlib"))),
		packed("zstd section of garbage", ErrCorrupt, chdr(2, 100, []byte("garbage, not zstd"))),
		packed("zstd section with a window of 2 GiB", ErrCorrupt, chdr(2, 100, hugeWindow)),
		packed("compression of unknown kind", ErrCorrupt, chdr(77, 100, nil)),
		packed("half a compression header", ErrCorrupt, []byte{1, 2, 3}),
	}
}

// zeros returns n MiB of zeros in zlib's format.
func zeros(n int) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write(make([]byte, n<<20))
	w.Close()
	return b.Bytes()
}

// xzHugeDict returns an .xz file whose block claims the largest dictionary.
func xzHugeDict() []byte {
	b := append(bytes.Clone(xzMagic), 0, 0)
	b = le.AppendUint32(b, crc32.ChecksumIEEE(b[6:8]))
	h := []byte{2, 0, xzFilterLZMA2, 1, 40, 0, 0, 0}
	h = le.AppendUint32(h, crc32.ChecksumIEEE(h))
	return append(append(b, h...), 0xff, 0xff, 0xff, 0xff)
}

func TestHostileFiles(t *testing.T) {
	lib, err := os.ReadFile(buildSymbols(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(hostileHeaders(lib), hostileTables()...) {
		t.Run(c.name, func(t *testing.T) {
			n := allocated(func() {
				f, err := Open(bytes.NewReader(c.file), int64(len(c.file)))
				if !errors.Is(err, c.open) {
					t.Fatalf("opening gives %v, want %v", err, c.open)
				}
				if err != nil {
					return
				}
				if err := exercise(f); c.use != nil && !errors.Is(err, c.use) {
					t.Errorf("using it gives %v, want %v", err, c.use)
				}
			})
			// The largest, a dictionary of the size of the output limit, is
			// the price of one legal mini debug file.
			if n > maxMiniDebug+(32<<20) {
				t.Errorf("allocates %d bytes", n)
			}
		})
	}
}

// TestNegativeSize stands for a caller that passes on a bad size.
func TestNegativeSize(t *testing.T) {
	if _, err := Open(bytes.NewReader(nil), -1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("opening gives %v, want ErrCorrupt", err)
	}
}

// TestShrinkingFile has a file that is shorter than it was when it was opened,
// and one whose reader fails.
func TestShrinkingFile(t *testing.T) {
	lib, err := os.ReadFile(buildSymbols(t))
	if err != nil {
		t.Fatal(err)
	}
	// A file that has lost its section headers opens without.
	errDisk := errors.New("input/output error")
	for _, c := range []struct {
		err, open error
	}{{io.EOF, nil}, {errDisk, errDisk}} {
		for end := 0; end < len(lib); end += 509 {
			f, err := Open(shrunk{lib, end, c.err}, int64(len(lib)))
			if err == nil && c.open == nil {
				err = exercise(f)
			}
			if err == nil || c.open != nil && !errors.Is(err, c.open) {
				t.Fatalf("a file of %d bytes that ends at %d gives %v, want an error (%v)", len(lib), end, err, c.open)
			}
		}
	}
}

// shrunk reads b as if it ended at end.
type shrunk struct {
	b   []byte
	end int
	err error
}

func (s shrunk) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(s.end) {
		return 0, s.err
	}
	n := copy(p, s.b[off:s.end])
	if n < len(p) {
		return n, s.err
	}
	return n, nil
}

// TestTruncatedFiles cuts a real file at many places.
func TestTruncatedFiles(t *testing.T) {
	lib, err := os.ReadFile(buildMiniDebug(t))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(lib); n += 97 {
		if f, err := Open(bytes.NewReader(lib[:n]), int64(n)); err == nil {
			exercise(f)
		}
	}
}
