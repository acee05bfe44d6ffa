// SPDX-License-Identifier: Apache-2.0

package elfsym

import "fmt"

// gnuHash is the header of a .gnu.hash table: a Bloom filter of 64-bit words,
// buckets of first symbol indexes, and one word of hash a symbol whose lowest
// bit ends the bucket. Layout: binutils bfd/elflink.c, glibc elf/dl-lookup.c.
type gnuHash struct {
	f        *File
	t        *symtab
	nbuckets uint32
	first    uint32 // index of the first hashed symbol
	nbloom   uint32
	shift    uint32
	bloom    uint64 // file offsets
	buckets  uint64
	chains   uint64
}

func (f *File) openGNUHash(t *symtab) (*gnuHash, error) {
	b, err := f.read(t.gnuHash.off, min(t.gnuHash.size, 16), 16)
	if err != nil {
		return nil, err
	}
	if len(b) < 16 {
		return nil, fmt.Errorf("hash table of %d bytes: %w", len(b), ErrCorrupt)
	}
	h := &gnuHash{
		f: f, t: t,
		nbuckets: le.Uint32(b), first: le.Uint32(b[4:]), nbloom: le.Uint32(b[8:]), shift: le.Uint32(b[12:]),
		bloom: t.gnuHash.off + 16,
	}
	h.buckets = h.bloom + 8*uint64(h.nbloom)
	h.chains = h.buckets + 4*uint64(h.nbuckets)
	if h.nbuckets == 0 || h.nbloom == 0 || h.chains-t.gnuHash.off > t.gnuHash.size {
		return nil, fmt.Errorf("hash table of %d buckets: %w", h.nbuckets, ErrCorrupt)
	}
	return h, nil
}

func gnuHashOf(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}

func (h *gnuHash) word(off uint64) (uint32, error) {
	var b [4]byte
	err := h.f.readInto(b[:], off)
	return le.Uint32(b[:]), err
}

// find calls fn with the symbols whose hash is that of name.
func (h *gnuHash) find(name string, fn func(*rawSymbol) error) error {
	hash := gnuHashOf(name)
	var b [8]byte
	if err := h.f.readInto(b[:], h.bloom+8*uint64(hash/64%h.nbloom)); err != nil {
		return err
	}
	mask := uint64(1)<<(hash%64) | uint64(1)<<(hash>>(h.shift&31)%64)
	if le.Uint64(b[:])&mask != mask {
		return nil
	}
	i, err := h.word(h.buckets + 4*uint64(hash%h.nbuckets))
	if err != nil || i == 0 {
		return err
	}
	if i < h.first {
		return fmt.Errorf("hash bucket starts at symbol %d: %w", i, ErrCorrupt)
	}
	for range maxChain {
		c, err := h.word(h.chains + 4*uint64(i-h.first))
		if err != nil {
			return err
		}
		if c|1 == hash|1 {
			s, err := h.f.symbolAt(h.t, uint64(i))
			if err != nil {
				return err
			}
			if err := fn(&s); err != nil {
				return err
			}
		}
		if c&1 != 0 {
			return nil
		}
		i++
	}
	return fmt.Errorf("hash bucket of more than %d symbols: %w", maxChain, ErrTooLarge)
}

// count returns the number of symbols: one more than the last of the bucket
// that starts last.
func (h *gnuHash) count() (uint64, error) {
	b, err := h.f.read(h.buckets, 4*uint64(h.nbuckets), 4*maxSymbols)
	if err != nil {
		return 0, err
	}
	var last uint32
	for ; len(b) > 0; b = b[4:] {
		last = max(last, le.Uint32(b))
	}
	if last < h.first || last == 0 {
		return uint64(h.first), nil // only symbols that are not hashed: imports
	}
	for range maxChain {
		c, err := h.word(h.chains + 4*uint64(last-h.first))
		if err != nil {
			return 0, err
		}
		last++
		if c&1 != 0 {
			return uint64(last), nil
		}
	}
	return 0, fmt.Errorf("hash bucket of more than %d symbols: %w", maxChain, ErrTooLarge)
}

// sysvHash is the header of a .hash table: nbucket, nchain, then the buckets
// and chains of symbol indexes, 0 ending a chain. System V ABI, chapter 5.
type sysvHash struct {
	f               *File
	t               *symtab
	nbucket, nchain uint32
}

func (f *File) openSysvHash(t *symtab) (*sysvHash, error) {
	b, err := f.read(t.sysvHash.off, 8, 8)
	if err != nil {
		return nil, err
	}
	h := &sysvHash{f: f, t: t, nbucket: le.Uint32(b), nchain: le.Uint32(b[4:])}
	if need := 8 + 4*(uint64(h.nbucket)+uint64(h.nchain)); h.nbucket == 0 || need > t.sysvHash.size {
		return nil, fmt.Errorf("hash table of %d buckets: %w", h.nbucket, ErrCorrupt)
	}
	return h, nil
}

func sysvHashOf(name string) uint32 {
	var h uint32
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		h ^= h >> 24 & 0xf0
	}
	return h & 0x0fffffff
}

// find calls fn with the symbols of the bucket of name.
func (h *sysvHash) find(name string, fn func(*rawSymbol) error) error {
	at := uint64(sysvHashOf(name) % h.nbucket)
	for range maxChain {
		var b [4]byte
		if err := h.f.readInto(b[:], h.t.sysvHash.off+8+4*at); err != nil {
			return err
		}
		i := le.Uint32(b[:])
		if i == 0 {
			return nil
		}
		if i >= h.nchain {
			return fmt.Errorf("hash chain leads to symbol %d of %d: %w", i, h.nchain, ErrCorrupt)
		}
		s, err := h.f.symbolAt(h.t, uint64(i))
		if err != nil {
			return err
		}
		if err := fn(&s); err != nil {
			return err
		}
		at = uint64(h.nbucket) + uint64(i)
	}
	return fmt.Errorf("hash chain of more than %d symbols: %w", maxChain, ErrTooLarge)
}
