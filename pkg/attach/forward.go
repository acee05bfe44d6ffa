// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/arch/x86/x86asm"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
)

// maxHops bounds a chain of functions that forward to each other. The longest
// seen is mimalloc's operator delete, in three.
const maxHops = 8

// Sizes and numbers of ELF64 (System V ABI, chapter 4) and of its AMD64
// supplement, 4.4.1.
const (
	relaSize      = 24
	symSize       = 24
	relocGlobDat  = 6 // R_X86_64_GLOB_DAT
	relocJumpSlot = 7 // R_X86_64_JUMP_SLOT
)

// forwards returns the candidates, by address, that do nothing but shuffle
// arguments and jump to another function of the table with the same role, whose
// name it gives. To probe them too would cost a trap a call, and for a free make
// two of one: jemalloc's operator delete is a jump to free, musl's memalign one
// to aligned_alloc. On arm64 it finds none.
func (m *matcher) forwards(image *elfsym.File, syms map[string]elfsym.Symbol, candidates []candidate) map[uint64]string {
	if image.Machine() != elf.EM_X86_64 {
		return nil
	}
	at := make(map[uint64]*candidate, len(candidates))
	for i := range candidates {
		at[candidates[i].sym.Value] = &candidates[i]
	}
	r := &resolver{image: image}
	// next returns where a candidate leads: to one here, or to a name elsewhere.
	next := func(c *candidate) (here *candidate, elsewhere string) {
		target, name := r.tailJump(c)
		if name != "" {
			if sym, ok := syms[name]; ok {
				target = sym.Value
			} else if row, ok := m.rows[name]; ok && !m.table[row].AllocatorOnly && sameRole(c.fn, &m.table[row]) {
				return nil, name
			}
		}
		if to := at[target]; to != nil && to != c && sameRole(c.fn, to.fn) {
			return to, ""
		}
		return nil, ""
	}
	found := map[uint64]string{}
	for i := range candidates {
		c := &candidates[i]
		for range maxHops {
			here, elsewhere := next(c)
			if elsewhere != "" {
				found[candidates[i].sym.Value] = elsewhere
			}
			if here == nil {
				if c != &candidates[i] && elsewhere == "" {
					found[candidates[i].sym.Value] = c.fn.Name
				}
				break
			}
			c = here
		}
		// A chain that does not end is a loop of a hostile file: found has no
		// entry for it, and each of its functions is probed.
	}
	return found
}

// sameRole reports whether seeing one function instead of the other tells the
// same.
func sameRole(a, b *alloc.Function) bool {
	return a.Role == b.Role && a.Kind == b.Kind && a.Result == b.Result
}

// resolver follows the jumps of a file's code through its PLT.
type resolver struct {
	image *elfsym.File
	slots map[uint64]uint32 // GOT entry -> number of its dynamic symbol; nil if not read
}

// tailJump returns where a function jumps that does nothing else: to an address
// in the file, or to a symbol by name. Both are zero for any other function.
func (r *resolver) tailJump(c *candidate) (target uint64, name string) {
	w := walkX64{code: c.code, fn: c.fn}
	for range maxPrologue {
		rest := w.code[w.pos:]
		if bytes.HasPrefix(rest, endbr64) {
			w.pos += len(endbr64)
			continue
		}
		pc := c.sym.Value + uint64(w.pos)
		if slot, ok := indirectX64(rest, pc); ok {
			return 0, r.symbolOf(slot)
		}
		if len(rest) > 0 && (rest[0] == 0xeb || rest[0] == 0xe9) {
			to, ok := jumpX64(rest)
			if !ok {
				return 0, ""
			}
			target = pc + uint64(int64(to))
			var stub [16]byte
			n, _ := r.image.ReadVaddr(stub[:], target)
			code := bytes.TrimPrefix(stub[:n], endbr64)
			if slot, ok := indirectX64(code, target+uint64(n-len(code))); ok {
				return 0, r.symbolOf(slot)
			}
			return target, ""
		}
		inst, err := x86asm.Decode(rest, 64)
		if err != nil || !w.pass(inst) || w.written&(1<<rspX64) != 0 {
			return 0, ""
		}
	}
	return 0, ""
}

// indirectX64 returns the address of the pointer through which a jump that
// stands at the start of b goes: jmp *disp(%rip), as in a PLT entry.
func indirectX64(b []byte, pc uint64) (slot uint64, ok bool) {
	length := uint64(6)
	if len(b) > 0 && b[0] == 0xf2 { // bnd, of a PLT for MPX
		b = b[1:]
		length++
	}
	if len(b) < 6 || b[0] != 0xff || b[1] != 0x25 {
		return 0, false
	}
	return pc + length + uint64(int64(int32(binary.LittleEndian.Uint32(b[2:])))), true
}

// symbolOf returns the name of the symbol whose address the dynamic linker puts
// into a GOT entry; empty if it is unknown.
func (r *resolver) symbolOf(slot uint64) string {
	if r.slots == nil {
		r.slots = map[uint64]uint32{}
		for _, section := range []string{".rela.plt", ".rela.dyn"} {
			r.readSlots(section)
		}
	}
	number, ok := r.slots[slot]
	if !ok {
		return ""
	}
	var sym [symSize]byte
	if !r.readSection(".dynsym", int64(number)*symSize, sym[:]) {
		return ""
	}
	names, err := r.image.SectionReader(".dynstr")
	if err != nil {
		return ""
	}
	var name [maxSymbolName]byte
	n, err := names.ReadAt(name[:], int64(binary.LittleEndian.Uint32(sym[:])))
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	end := bytes.IndexByte(name[:n], 0)
	if end < 0 {
		return ""
	}
	return string(name[:end])
}

func (r *resolver) readSection(name string, offset int64, b []byte) bool {
	s, err := r.image.SectionReader(name)
	if err != nil {
		return false
	}
	_, err = s.ReadAt(b, offset)
	return err == nil
}

// readSlots notes the GOT entries that a section of relocations fills with
// addresses of symbols. What cannot be read is left out.
func (r *resolver) readSlots(section string) {
	s, err := r.image.SectionReader(section)
	if err != nil {
		return
	}
	const chunk = 1024 * relaSize
	buf := make([]byte, chunk)
	for off := int64(0); off < min(s.Size(), maxRelocations*relaSize); off += chunk {
		n, err := s.ReadAt(buf, off)
		for e := buf[:n]; len(e) >= relaSize; e = e[relaSize:] {
			info := binary.LittleEndian.Uint64(e[8:])
			if kind := uint32(info); kind == relocGlobDat || kind == relocJumpSlot {
				r.slots[binary.LittleEndian.Uint64(e)] = uint32(info >> 32)
			}
		}
		if err != nil {
			return
		}
	}
}
