// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"unsafe"
)

// entry is a cached table and what it is the table of.
type entry struct {
	digest   [sha256.Size]byte
	probes   []probe
	probeSum [sha256.Size]byte
	table    *Table
}

// entryHeader stands at the start of an entry's file, and is followed by the
// probes (offset and size, three words each), Pages, Rows and Infos of the
// table, all as they are in memory: the file is read in one go into one slice
// that the table then consists of.
type entryHeader struct {
	Magic    [8]byte
	Order    [4]byte // entryOrder in the byte order of the machine
	Probes   uint32
	Pages    uint32
	Rows     uint32
	Infos    uint32
	BodySum  uint32 // CRC-32C of what follows the header
	Digest   [sha256.Size]byte
	ProbeSum [sha256.Size]byte
	HeadSum  uint32 // CRC-32C of the header up to here
}

const (
	entryMagic  = "unfrows\x01" // the last byte is the version of the format
	entryOrder  = 0x01020304
	headerSize  = 8 + 4 + 5*4 + 2*sha256.Size + 4
	probeWords  = 3
	infoWords   = 3
	wordSize    = 4
	entrySuffix = ".rows"
)

// castagnoli is the polynomial that processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bytesOf returns the memory of a slice of 32-bit words or of Info, neither of
// which has padding or pointers.
func bytesOf[T uint32 | Info](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

// infosOf returns words as infos, which have the alignment of words.
func infosOf(words []uint32) []Info {
	return unsafe.Slice((*Info)(unsafe.Pointer(unsafe.SliceData(words))), len(words)/infoWords)
}

// size returns the size of the entry's file.
func (e *entry) size() int64 {
	words := len(e.probes)*probeWords + len(e.table.Pages) + len(e.table.Rows) + len(e.table.Infos)*infoWords
	return headerSize + int64(words)*wordSize
}

// encode writes the entry's file.
func (e *entry) encode(w io.Writer) error {
	probes := make([]uint32, 0, len(e.probes)*probeWords)
	for _, p := range e.probes {
		probes = append(probes, uint32(p.off), uint32(uint64(p.off)>>32), uint32(p.n))
	}
	body := [][]byte{bytesOf(probes), bytesOf(e.table.Pages), bytesOf(e.table.Rows), bytesOf(e.table.Infos)}
	h := entryHeader{
		Probes:   uint32(len(e.probes)),
		Pages:    uint32(len(e.table.Pages)),
		Rows:     uint32(len(e.table.Rows)),
		Infos:    uint32(len(e.table.Infos)),
		Digest:   e.digest,
		ProbeSum: e.probeSum,
	}
	for _, b := range body {
		h.BodySum = crc32.Update(h.BodySum, castagnoli, b)
	}
	for _, b := range append([][]byte{h.seal()}, body...) {
		if _, err := w.Write(b); err != nil {
			return fmt.Errorf("writing table: %w", err)
		}
	}
	return nil
}

// seal fills in the constant parts and the header's sum, and returns its bytes.
func (h *entryHeader) seal() []byte {
	copy(h.Magic[:], entryMagic)
	binary.NativeEndian.PutUint32(h.Order[:], entryOrder)
	b, err := binary.Append(make([]byte, 0, headerSize), binary.LittleEndian, h)
	if err != nil {
		panic(err) // entryHeader has a fixed size
	}
	h.HeadSum = crc32.Checksum(b[:headerSize-4], castagnoli)
	binary.LittleEndian.PutUint32(b[headerSize-4:], h.HeadSum)
	return b
}

// decodeEntry reads an entry's file. What it returns can be relied on to be in
// range even if someone who can write to the directory made it up.
func decodeEntry(r io.ReaderAt, size int64) (*entry, error) {
	var head [headerSize]byte
	if size < headerSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, size)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("reading header: %w", err)
	}
	var h entryHeader
	if _, err := binary.Decode(head[:], binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("decoding header: %w", err)
	}
	want := h
	if !bytes.Equal(want.seal(), head[:]) {
		return nil, fmt.Errorf("%w: damaged header", ErrCorrupt)
	}
	if h.Probes > maxProbes || h.Pages > maxPages+1 || h.Rows > maxRows || h.Infos > maxInfos {
		return nil, fmt.Errorf("%w: %d probes, %d pages, %d rows, %d infos", ErrTooLarge, h.Probes, h.Pages, h.Rows, h.Infos)
	}
	n := h.Probes*probeWords + h.Pages + h.Rows + h.Infos*infoWords
	if size != headerSize+int64(n)*wordSize {
		return nil, fmt.Errorf("%w: %d bytes where the header says %d", ErrCorrupt, size, headerSize+int64(n)*wordSize)
	}
	words := make([]uint32, n)
	if _, err := r.ReadAt(bytesOf(words), headerSize); err != nil {
		return nil, fmt.Errorf("reading table: %w", err)
	}
	if crc32.Checksum(bytesOf(words), castagnoli) != h.BodySum {
		return nil, fmt.Errorf("%w: damaged table", ErrCorrupt)
	}
	return h.split(words)
}

// split takes an entry's content apart.
func (h *entryHeader) split(words []uint32) (*entry, error) {
	take := func(n uint32) (part []uint32) {
		part, words = words[:n:n], words[n:]
		return part
	}
	e := &entry{digest: h.Digest, probeSum: h.ProbeSum}
	probes, total := take(h.Probes*probeWords), uint64(0)
	for ; len(probes) > 0; probes = probes[probeWords:] {
		if total += uint64(probes[2]); total > maxProbeBytes {
			return nil, fmt.Errorf("%w: probes of %d bytes", ErrTooLarge, total)
		}
		off := uint64(probes[0]) | uint64(probes[1])<<32
		e.probes = append(e.probes, probe{int64(off), int32(probes[2])})
	}
	e.table = &Table{Pages: take(h.Pages), Rows: take(h.Rows), Infos: infosOf(take(h.Infos * infoWords))}
	if err := e.table.validate(); err != nil {
		return nil, err
	}
	return e, nil
}
