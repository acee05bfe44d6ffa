// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym/elftest"
)

// elfBuilder is elftest.Builder in short notation.
type elfBuilder struct{ elftest.Builder }

func newELF() *elfBuilder { return &elfBuilder{} }

func (b *elfBuilder) section(name string, typ elf.SectionType, flags elf.SectionFlag, addr uint64, content []byte) {
	b.Section(elftest.Section{Name: name, Type: typ, Flags: flags, Addr: addr, Content: content})
}

func (b *elfBuilder) symtab(name string, typ elf.SectionType, content []byte, strtab string) {
	b.Section(elftest.Section{Name: name, Type: typ, Content: content, Link: strtab})
}

func (b *elfBuilder) open(tb testing.TB) *File {
	tb.Helper()
	raw := b.Bytes()
	f, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}
