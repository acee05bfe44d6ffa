// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/unfreed/unfreed/pkg/elfsym/elftest"
	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestSDTNotes(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the probes are written in x86-64 assembly")
	}
	lib := filepath.Join(t.TempDir(), "libsdt.so")
	run(t, testutil.Root(t), "gcc", "-shared", "-o", lib, "testdata/elf/sdt.s")
	run(t, filepath.Dir(lib), "strip", "libsdt.so") // probes survive
	f := openFile(t, lib)
	got, err := f.SDTNotes()
	if err != nil {
		t.Fatal(err)
	}
	want := []SDTNote{
		{Provider: "demo", Name: "malloc", Args: "-8@%rdi -1@%dl -8@56(%rsp)"},
		{Provider: "demo", Name: "malloc", Args: "-8@%rax 4@$3"},
		{Provider: "demo", Name: "free", Args: "8@%rdi"},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(SDTNote{}, "PC", "Base", "Semaphore")); d != "" {
		t.Fatalf("notes (-want +got):\n%s", d)
	}
	syms, err := f.Lookup("probed")
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range got {
		if want := syms["probed"].Value + uint64(i); n.PC != want {
			t.Errorf("probe %d at %#x, want %#x", i, n.PC, want)
		}
	}
	if got[0].Semaphore == 0 || got[0].Semaphore != got[1].Semaphore || got[2].Semaphore != 0 {
		t.Errorf("semaphores at %#x, %#x, %#x; want one address twice, then 0", got[0].Semaphore, got[1].Semaphore, got[2].Semaphore)
	}
	if _, ok := f.VaddrToOffset(got[0].Semaphore); !ok {
		t.Error("the semaphore is not in the file")
	}
}

func TestSDTNotesOfFileWithout(t *testing.T) {
	if got, err := openFile(t, buildSymbols(t)).SDTNotes(); len(got) != 0 || err != nil {
		t.Errorf("got %v, %v; want nothing", got, err)
	}
}

// TestSDTNotesPrelinked has the base section moved since the note was written.
func TestSDTNotesPrelinked(t *testing.T) {
	desc := binary.LittleEndian.AppendUint64(nil, 0x1100)
	desc = binary.LittleEndian.AppendUint64(desc, 0x2000)
	desc = binary.LittleEndian.AppendUint64(desc, 0x3000)
	desc = append(desc, "p\x00n\x00\x00"...)
	b := newELF()
	b.section(".note.stapsdt", elf.SHT_NOTE, 0, 0, elftest.Note("stapsdt", 3, desc))
	b.section(".stapsdt.base", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x42000, []byte{0})
	got, err := b.open(t).SDTNotes()
	if err != nil {
		t.Fatal(err)
	}
	want := []SDTNote{{Provider: "p", Name: "n", PC: 0x41100, Base: 0x2000, Semaphore: 0x43000}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func TestNotesOfAlignment(t *testing.T) {
	b := append(elftest.Note("GNU", 5, make([]byte, 16)), elftest.Note("abcdefgh", 7, []byte{1, 2, 3})...)
	b = append(b, elftest.Note("", 9, nil)...)
	var got []note
	eachNote(b, 4, func(n note) bool {
		got = append(got, note{n.owner, n.typ, bytes.Clone(n.desc)})
		return true
	})
	want := []note{{"GNU", 5, make([]byte, 16)}, {"abcdefgh", 7, []byte{1, 2, 3}}, {"", 9, nil}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(note{}), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}
