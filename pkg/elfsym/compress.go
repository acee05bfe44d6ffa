// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	// zdebugSize is the header of a section compressed in the old GNU style,
	// named .zdebug_*: "ZLIB" and the size as a big-endian number.
	zdebugSize = 12
	// maxZstdWindow is the most memory that a zstd frame can claim for its
	// window. binutils and lld compress at levels whose window is at most 8 MiB.
	maxZstdWindow = 32 << 20
)

// compressed reports whether the section's content is compressed.
func (s *section) compressed() bool {
	return s.flags&elf.SHF_COMPRESSED != 0 || strings.HasPrefix(s.name, ".zdebug_")
}

// Decompress writes the decompressed content of a section to w, at most limit
// bytes of it, and returns how many. A section that is not compressed is
// copied. It fails with [ErrNoSection], [ErrCorrupt], [ErrTooLarge], or with
// the error of w.
func (f *File) Decompress(name string, w io.Writer, limit int64) (int64, error) {
	s, err := f.sectionNamed(name)
	if err != nil {
		return 0, err
	}
	n, err := f.decompress(s, w, limit)
	if err != nil {
		return n, fmt.Errorf("decompressing %s: %w", name, err)
	}
	return n, nil
}

// CompressedSize returns how many bytes a section takes in the file and how
// many it claims to have when decompressed, which [File.Decompress] enforces. It
// fails with [ErrNoSection] or [ErrCorrupt].
func (f *File) CompressedSize(name string) (packed, size uint64, err error) {
	s, err := f.sectionNamed(name)
	if err != nil {
		return 0, 0, err
	}
	if !f.span(s.off, s.size) {
		return 0, 0, fmt.Errorf("%s: %w", name, ErrCorrupt)
	}
	_, size, err = compressionHeader(s, io.NewSectionReader(f.r, int64(s.off), int64(s.size)))
	return s.size, size, err
}

func (f *File) decompress(s *section, w io.Writer, limit int64) (int64, error) {
	if !f.span(s.off, s.size) {
		return 0, ErrCorrupt
	}
	raw := io.NewSectionReader(f.r, int64(s.off), int64(s.size))
	kind, size, err := compressionHeader(s, raw)
	if err != nil {
		return 0, err
	}
	if size > uint64(limit) {
		return 0, fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	var r io.Reader = raw
	switch kind {
	case 0:
	case elf.COMPRESS_ZLIB:
		z, err := zlib.NewReader(raw)
		if err != nil {
			return 0, fmt.Errorf("opening a zlib stream: %w: %w", ErrCorrupt, err)
		}
		defer z.Close()
		r = z
	case elf.COMPRESS_ZSTD:
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return 0, fmt.Errorf("opening a zstd stream: %w: %w", ErrCorrupt, err)
		}
		defer z.Close()
		r = z
	default:
		return 0, fmt.Errorf("compression type %d: %w", kind, ErrCorrupt)
	}
	return copySection(w, r, int64(size))
}

// compressionHeader consumes the header of a compressed section: the kind of
// compression, 0 for none, and the size of the content.
func compressionHeader(s *section, r io.Reader) (elf.CompressionType, uint64, error) {
	var b [chdrSize]byte
	switch {
	case s.flags&elf.SHF_COMPRESSED != 0:
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return 0, 0, fmt.Errorf("reading the compression header: %w: %w", ErrCorrupt, err)
		}
		return elf.CompressionType(le.Uint32(b[:])), le.Uint64(b[8:]), nil
	case s.compressed():
		if _, err := io.ReadFull(r, b[:zdebugSize]); err != nil || string(b[:4]) != "ZLIB" {
			return 0, 0, fmt.Errorf("reading the compression header: %w", ErrCorrupt)
		}
		return elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(b[4:]), nil
	}
	return 0, s.size, nil
}

// copySection copies exactly size bytes and stops where the stream would
// deliver more than its header states.
func copySection(w io.Writer, r io.Reader, size int64) (int64, error) {
	n, err := io.CopyN(w, corruptReader{r}, size)
	if errors.Is(err, io.EOF) {
		return n, fmt.Errorf("%d of %d bytes: %w", n, size, ErrCorrupt)
	}
	if err != nil {
		return n, fmt.Errorf("%d of %d bytes: %w", n, size, err)
	}
	return n, nil
}

// corruptReader marks the errors of a decompressor, to tell them from those of
// the writer.
type corruptReader struct{ r io.Reader }

func (c corruptReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return n, err
}
