// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"io"
	"os"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// Extract makes the table of an ELF file. It reads f at offsets of its own, so
// that f's position is neither used nor moved, and does not close it.
//
// Errors wrap one of this package's sentinels, or what the system said. Any
// number of files can be extracted at once; each takes memory of about eight
// times its .eh_frame meanwhile, 130 MB for the largest library known
// (libtorch_cpu 2.15).
func Extract(f *os.File) (*Table, error) {
	size, err := regularSize(f)
	if err != nil {
		return nil, err
	}
	t, err := ExtractAt(f, size)
	if err != nil {
		return nil, fmt.Errorf("extracting unwind rows of %q: %w", f.Name(), err)
	}
	return t, nil
}

// ExtractAt makes the table of the ELF file of size bytes behind r, which may
// be memory: the vDSO is read from the target and given as a bytes.Reader.
func ExtractAt(r io.ReaderAt, size int64) (*Table, error) {
	s, err := newSource(r, size)
	if err != nil {
		return nil, err
	}
	t, _, err := s.extract("")
	return t, err
}

// regularSize returns the size of f, which must be a regular file: reading a
// pipe or a device may block or do something.
func regularSize(f *os.File) (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading status of %q: %w", f.Name(), err)
	}
	if !fi.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %q is no regular file", ErrUnsupported, f.Name())
	}
	return fi.Size(), nil
}

// extract makes the table, and returns the image that it follows from, or no
// image if it follows from less than the whole of one.
//
// The extractor gives up on a file at the first record it does not know. Odd
// records are likely in .debug_frame and in Go tables, so that .eh_frame alone
// is tried then: the addresses that are missing have no row, and stacks
// through them say so.
func (s *source) extract(version string) (*Table, *image, error) {
	m, err := s.load(version)
	if err != nil {
		return nil, nil, err
	}
	t, err := m.table()
	if err == nil {
		return t, m, nil
	}
	frames := s.only(".eh_frame")
	if len(frames.sections) == 0 || len(frames.sections) == len(s.sections) {
		return nil, nil, err
	}
	if m, loadErr := frames.load(version); loadErr == nil {
		if t, frameErr := m.table(); frameErr == nil {
			return t, nil, nil
		}
	}
	return nil, nil, err
}

// only returns s with no section but the one named.
func (s *source) only(name string) *source {
	c := *s
	c.sections = nil
	for _, x := range s.sections {
		if x.name == name {
			c.sections = append(c.sections, x)
		}
	}
	return &c
}

// table runs the extractor on m and packs what it finds. It can be called once.
func (m *image) table() (*Table, error) {
	for _, c := range m.chunks {
		if c.name == ".gopclntab" {
			if err := checkGoTable(c.data); err != nil {
				return nil, err
			}
		}
	}
	d, err := m.intervals()
	if err != nil {
		return nil, err
	}
	m.chunks = nil // no longer needed, and as large as the table
	return pack(d, m.src.text)
}

// noFiles refuses to open what .gnu_debuglink names: the name is the file's,
// and would be looked up on this side of the mount namespace.
type noFiles struct{}

func (noFiles) OpenELF(string) (*pfelf.File, error) { return nil, os.ErrNotExist }

// intervals runs the extractor. It was written for files that compilers make
// and may index out of range in others: that is the file's fault.
func (m *image) intervals() (d *sdtypes.IntervalData, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case refusal:
			d, err = nil, p.err
		default:
			d, err = nil, fmt.Errorf("%w: extractor panicked: %v", ErrCorrupt, p)
		}
	}()
	ref := pfelf.NewReferenceWithOpenFunc("", noFiles{}, func() (*pfelf.File, error) {
		return pfelf.NewFile(m, 0, false)
	})
	defer ref.Close()
	d, err = elfunwindinfo.ExtractELF(ref)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d, nil
}
