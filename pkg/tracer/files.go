// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
)

// fileID names a file by what the kernel says of its mapping. Device and inode
// are those of /proc/PID/maps, which are the same for every mapping of a file.
type fileID struct{ dev, inode uint64 }

// file is a file mapped into the target, held open so that it can still be
// symbolised when the target and the file's name are gone.
type file struct {
	id    fileID
	path  string
	f     *os.File
	image []byte // of the vDSO, which is no file
	elf   *elfsym.File
	err   error // why it could not be opened or is not ELF
}

// files are the target's files. Safe for concurrent use; close frees them.
type files struct {
	open func(proc.Mapping) (*os.File, error)

	mu   sync.Mutex
	byID map[fileID]*file
}

func newFiles(open func(proc.Mapping) (*os.File, error)) *files {
	return &files{open: open, byID: map[fileID]*file{}}
}

var errNotMapped = errors.New("not a mapped file")

// get opens the file of a mapping, or returns the one opened before. A file
// that cannot be opened has err set and is not tried again.
func (fs *files) get(m proc.Mapping) *file {
	if !m.FileBacked() {
		return &file{err: errNotMapped}
	}
	id := fileID{m.Dev, m.Inode}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.byID[id]; ok {
		return f
	}
	f := &file{id: id, path: m.Path}
	f.f, f.err = fs.open(m)
	if f.err == nil {
		f.elf, f.err = openELF(f.f)
	}
	fs.byID[id] = f
	return f
}

func openELF(f *os.File) (*elfsym.File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("asking for the size of %q: %w", f.Name(), err)
	}
	return elfsym.Open(f, st.Size())
}

// elfOf is get for those who want the ELF file or an error.
func (fs *files) elfOf(m proc.Mapping) (*elfsym.File, error) {
	f := fs.get(m)
	return f.elf, f.err
}

// reopen opens the file a second time; the caller closes it.
func (f *file) reopen() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.f.Fd()))
}

func (fs *files) close() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var errs []error
	for _, f := range fs.byID {
		if f.f != nil {
			errs = append(errs, f.f.Close())
		}
	}
	fs.byID = map[fileID]*file{}
	return errors.Join(errs...)
}
