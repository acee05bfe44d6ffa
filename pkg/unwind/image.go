// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// headOffset is where the made-up program headers, section headers and section
// names stand in an image: beyond the end of any file.
const headOffset = 1 << 60

// image is what the extractor sees of an ELF file: headers made anew from
// those that passed newSource, the frame sections as they were when they were
// read, and the bytes of loaded segments, which it asks for in small pieces.
// Everything else, and every section and segment that the rows do not depend
// on, is absent, and with it what a hostile file could do there.
//
// What the extractor made of an image is decided by image.digest and by the
// bytes that it read from the file itself, listed in image.probes: both are
// taken from the very bytes it was given, so that a file that changes in the
// meantime cannot pass one table off as that of other contents.
type image struct {
	src    *source
	ehdr   []byte // the ELF header
	head   []byte // the other headers, at headOffset
	chunks []chunk
	digest [sha256.Size]byte

	served    int64     // bytes of sections given out
	probes    []probe   // reads of the file, in order
	probeSum  hash.Hash // over their bytes
	probeSize int64
}

// chunk is a section's content.
type chunk struct {
	section
	data []byte
}

// probe is a read of n bytes at off. A read past the end of the file got none.
type probe struct {
	off int64
	n   int32
}

// load reads the sections of s and hashes them after version.
func (s *source) load(version string) (*image, error) {
	m := &image{src: s, probeSum: sha256.New()}
	h := sha256.New()
	var err error
	m.ehdr, m.head, err = s.startDigest(h, version)
	if err != nil {
		return nil, err
	}
	for _, x := range s.sections {
		if x.headerOnly {
			continue
		}
		data := make([]byte, x.size)
		if _, err := s.r.ReadAt(data, x.off); err != nil {
			return nil, fmt.Errorf("reading %s: %w", x.name, err)
		}
		h.Write(data)
		m.chunks = append(m.chunks, chunk{x, data})
	}
	h.Sum(m.digest[:0])
	return m, nil
}

// digest returns what the digest of the image would be, reading the sections
// but holding none.
func (s *source) digest(version string) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, _, err := s.startDigest(h, version); err != nil {
		return sum, err
	}
	buf := make([]byte, 1<<17)
	for _, x := range s.sections {
		if x.headerOnly {
			continue
		}
		r := io.NewSectionReader(s.r, x.off, x.size)
		if n, err := io.CopyBuffer(onlyWriter{h}, r, buf); err != nil {
			return sum, fmt.Errorf("reading %s: %w", x.name, err)
		} else if n != x.size {
			return sum, fmt.Errorf("reading %s: %w", x.name, io.ErrUnexpectedEOF)
		}
	}
	h.Sum(sum[:0])
	return sum, nil
}

// onlyWriter hides other methods, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// startDigest makes the headers of an image and writes them to h. They name
// the place and size of every section, so that the sections' bytes can follow
// without separators.
func (s *source) startDigest(h hash.Hash, version string) (ehdr, head []byte, err error) {
	ehdr, head, err = s.headers()
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(h, "%d %s %d %d\n", len(version), version, len(ehdr), len(head))
	h.Write(ehdr)
	h.Write(head)
	return ehdr, head, nil
}

// headers makes the headers of an image.
func (s *source) headers() (ehdr, head []byte, err error) {
	sections := []elf.Section64{{}}
	names := []byte{0}
	name := func(x string) uint32 {
		off := uint32(len(names))
		names = append(append(names, x...), 0)
		return off
	}
	for _, x := range s.sections {
		sections = append(sections, elf.Section64{
			Name: name(x.name),
			Type: uint32(elf.SHT_PROGBITS),
			Addr: x.addr,
			Off:  uint64(x.off),
			Size: uint64(x.size),
		})
	}
	strs := elf.Section64{Name: name(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Size: uint64(len(names))}

	h := s.header
	h.Phoff = headOffset
	h.Phentsize = uint16(binary.Size(elf.Prog64{}))
	h.Phnum = uint16(len(s.segments))
	h.Shoff = h.Phoff + uint64(binary.Size(s.segments))
	h.Shentsize = uint16(binary.Size(elf.Section64{}))
	h.Shnum = uint16(len(sections) + 1)
	h.Shstrndx = h.Shnum - 1
	strs.Off = h.Shoff + uint64(h.Shnum)*uint64(h.Shentsize)
	sections = append(sections, strs)

	var e, b bytes.Buffer
	err = errors.Join(
		binary.Write(&e, binary.LittleEndian, &h),
		binary.Write(&b, binary.LittleEndian, s.segments),
		binary.Write(&b, binary.LittleEndian, sections))
	b.Write(names)
	return e.Bytes(), b.Bytes(), err
}

// refusal is what ReadAt panics with to end the extractor's work, which takes a
// failed read for the number zero and can go on reading forever.
type refusal struct{ err error }

// ReadAt implements io.ReaderAt for the extractor. See refusal for its errors.
func (m *image) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case off >= headOffset:
		return copyAt(p, m.head, off-headOffset)
	case off >= 0 && off < int64(len(m.ehdr)):
		n := copy(p, m.ehdr[off:])
		if n == len(p) {
			return n, nil
		}
		k, err := m.ReadAt(p[n:], off+int64(n))
		return n + k, err
	}
	for _, c := range m.chunks {
		if off < c.off || off >= c.off+c.size {
			continue
		}
		n, err := copyAt(p, c.data, off-c.off)
		if m.served += int64(n); m.served > maxServed {
			panic(refusal{fmt.Errorf("%w: reading %s over and over", ErrTooLarge, c.name)})
		}
		return n, err
	}
	return m.probe(p, off)
}

// copyAt is io.ReaderAt on a slice.
func copyAt(p, data []byte, off int64) (int, error) {
	if off >= int64(len(data)) {
		return 0, io.EOF
	}
	n := copy(p, data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// probe reads a piece of the file itself.
func (m *image) probe(p []byte, off int64) (int, error) {
	m.probeSize += int64(len(p))
	if len(m.probes) >= maxProbes || m.probeSize > maxProbeBytes {
		panic(refusal{fmt.Errorf("%w: reading code in more than %d places", ErrTooLarge, maxProbes)})
	}
	n, err := readProbe(m.src.r, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		panic(refusal{fmt.Errorf("reading %d bytes at %#x: %w", len(p), off, err)})
	}
	m.probes = append(m.probes, probe{off, int32(len(p))})
	addProbe(m.probeSum, p[:n])
	return n, err
}

// readProbe reads at off, which a file may have made negative.
func readProbe(r io.ReaderAt, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, io.EOF
	}
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		err = nil // a reader may say EOF along with the last bytes
	}
	return n, err
}

// addProbe adds what a probe read to the sum of all.
func addProbe(h hash.Hash, got []byte) {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(got)))
	h.Write(n[:])
	h.Write(got)
}

// checkProbes says whether the reads that a table was made with give the same
// bytes, by their sum, in this file.
func (s *source) checkProbes(probes []probe, want [sha256.Size]byte) (bool, error) {
	h := sha256.New()
	var buf []byte
	for _, x := range probes {
		buf = slices.Grow(buf[:0], int(x.n))[:x.n]
		n, err := readProbe(s.r, buf, x.off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("reading %d bytes at %#x: %w", x.n, x.off, err)
		}
		addProbe(h, buf[:n])
	}
	var got [sha256.Size]byte
	h.Sum(got[:0])
	return got == want, nil
}
