// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

// source is the content of one section. A section that the file does not have
// is a source of size 0.
type source struct {
	name string
	r    io.ReaderAt
	size uint64
	work *int64 // what may still be read of the file
}

// openSource opens a section, decompressed if need be. The closer is not nil
// if it was decompressed into a temporary file.
func openSource(f *elfsym.File, name string, work *int64) (*source, io.Closer, error) {
	s := &source{name: name, work: work}
	r, err := f.SectionReader(name)
	switch {
	case err == nil:
		s.r, s.size = r, uint64(r.Size())
		return s, nil, nil
	case errors.Is(err, elfsym.ErrCompressed):
		c, err := s.decompress(f, name)
		return s, c, err
	case !errors.Is(err, elfsym.ErrNoSection):
		return nil, nil, err
	}
	// The style of binutils before 2.26.
	old := ".z" + name[1:]
	if _, err := f.SectionReader(old); errors.Is(err, elfsym.ErrNoSection) {
		s.r = bytes.NewReader(nil)
		return s, nil, nil
	}
	c, err := s.decompress(f, old)
	return s, c, err
}

// decompress fills the source from a compressed section.
func (s *source) decompress(f *elfsym.File, name string) (io.Closer, error) {
	packed, size, err := f.CompressedSize(name)
	if err != nil {
		return nil, err
	}
	if size > maxSpill || size/maxRatio > packed {
		return nil, fmt.Errorf("decompressing %s from %d to %d bytes: %w", name, packed, size, elfsym.ErrTooLarge)
	}
	if size <= maxInMemory {
		var b bytes.Buffer
		b.Grow(int(size))
		if _, err := f.Decompress(name, &b, maxInMemory); err != nil {
			return nil, err
		}
		s.r, s.size = bytes.NewReader(b.Bytes()), size
		return nil, nil
	}
	return s.spill(f, name, size)
}

// spill decompresses a section into a temporary file that is unlinked at once.
func (s *source) spill(f *elfsym.File, name string, size uint64) (io.Closer, error) {
	t, err := os.CreateTemp("", "unfreed-debug-")
	if err != nil {
		return nil, fmt.Errorf("decompressing %s: %w", name, err)
	}
	if err = os.Remove(t.Name()); err == nil {
		_, err = f.Decompress(name, t, maxSpill)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	s.r, s.size = t, size
	return t, nil
}

// errBudget ends the reading of a file that makes it endless.
var errBudget = fmt.Errorf("reading debug information over and over: %w", elfsym.ErrTooLarge)

// read fills b from off and charges it.
func (s *source) read(b []byte, off uint64) error {
	if off > s.size || uint64(len(b)) > s.size-off {
		return s.corrupt(off)
	}
	if *s.work -= int64(len(b)); *s.work < 0 {
		return errBudget
	}
	n, err := s.r.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.corrupt(off)
	}
	return fmt.Errorf("reading %s: %w", s.name, err)
}

func (s *source) corrupt(off uint64) error {
	return fmt.Errorf("reading %s at %#x: %w", s.name, off, elfsym.ErrCorrupt)
}

// str returns the NUL-terminated string at off.
func (s *source) str(off uint64) (string, error) {
	var out []byte
	buf := make([]byte, 96)
	for len(out) < maxString && off < s.size {
		b := buf[:min(uint64(len(buf)), s.size-off)]
		if err := s.read(b, off); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...)), nil
		}
		out = append(out, b...)
		off += uint64(len(b))
		buf = make([]byte, min(2*len(buf), 4096))
	}
	return "", s.corrupt(off)
}
