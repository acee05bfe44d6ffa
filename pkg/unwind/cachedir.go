// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// tempPrefix starts the name of a file that is being written.
	tempPrefix = ".tmp-"

	// tempAge is when such a file was left behind by a process that died:
	// writing takes well under a second.
	tempAge = time.Hour

	// evictTo is the part of the space, in percent, that is filled after an
	// eviction, so that not every new entry causes one.
	evictTo = 80
)

// DirError says that a cache directory is not one to be trusted.
type DirError struct {
	Dir    string // its path
	Reason string // what is wrong, such as "belongs to user 1000"
	Fix    string // what to do, a command where there is one
}

// Error returns all three.
func (e *DirError) Error() string {
	return fmt.Sprintf("cache directory %q %s [%s]", e.Dir, e.Reason, e.Fix)
}

// DefaultCacheDir returns the directory for cached tables: /var/cache/unfreed
// for root, whatever HOME says under sudo, and unfreed in the user's cache
// directory ($XDG_CACHE_HOME or ~/.cache) else. It makes nothing.
func DefaultCacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/unfreed", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	return filepath.Join(dir, "unfreed"), nil
}

// cacheDir is a directory of files of bounded size together. Files are written
// aside and renamed, never changed, so that readers need no lock.
type cacheDir struct {
	root *os.Root
	max  int64

	mu   sync.Mutex
	used int64 // as of the last scan, plus what was written since
}

func openCacheDir(dir string, maxBytes int64) (*cacheDir, error) {
	if maxBytes <= 0 {
		return nil, fmt.Errorf("opening cache %q: a size of %d bytes holds nothing", dir, maxBytes)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making cache directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening cache directory: %w", err)
	}
	d := &cacheDir{root: root, max: maxBytes}
	if err = checkDir(dir, root); err == nil {
		err = d.evict(0)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// checkDir judges the directory that was opened, not what its name now means.
func checkDir(dir string, root *os.Root) error {
	opened, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("reading status of cache directory: %w", err)
	}
	named, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("reading status of cache directory: %w", err)
	}
	if !os.SameFile(named, opened) {
		return &DirError{dir, "is a symbolic link", "name the directory that it leads to"}
	}
	if st, ok := opened.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return &DirError{dir, fmt.Sprintf("does not belong to user %d, who runs this", os.Geteuid()),
			"name another directory, or delete this one"}
	}
	if perm := opened.Mode().Perm(); perm&0o077 != 0 {
		return &DirError{dir, fmt.Sprintf("is open to other users (mode %#o)", perm), "chmod 0700 " + dir}
	}
	return nil
}

// open opens a file for reading.
func (d *cacheDir) open(name string) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening cached table: %w", err)
	}
	return f, nil
}

// touch notes that a file was used. It may have been evicted, or the file
// system be read-only: then the order of eviction is off, which is all.
func (d *cacheDir) touch(name string, now time.Time) { _ = d.root.Chtimes(name, now, now) }

// write makes a file of size bytes, in place of the one that may be there.
func (d *cacheDir) write(name string, size int64, encode func(io.Writer) error) (err error) {
	if err := d.reserve(size); err != nil {
		return err
	}
	temp := tempPrefix + rand.Text()
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("making cached table: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.root.Remove(temp))
		}
	}()
	w := bufio.NewWriter(f)
	if err := errors.Join(encode(w), w.Flush(), f.Close()); err != nil {
		return err
	}
	if err := d.root.Rename(temp, name); err != nil {
		return fmt.Errorf("naming cached table: %w", err)
	}
	return nil
}

// reserve makes room for a file. Other processes may write at the same time:
// each keeps to the bound as it sees it, and sees the others' files when it
// next evicts or opens the cache.
func (d *cacheDir) reserve(size int64) error {
	if size > d.max {
		return fmt.Errorf("%w: a table of %d bytes in a cache of %d", ErrTooLarge, size, d.max)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used+size > d.max {
		if err := d.evict(size); err != nil {
			return err
		}
	}
	d.used += size
	return nil
}

// evict measures the directory, deletes what dead writers left, and, if there
// is no room for size more bytes, deletes the files that have been unused for
// longest until there is room to spare.
func (d *cacheDir) evict(size int64) error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("listing cache directory: %w", err)
	}
	var files []fs.FileInfo
	d.used = 0
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() {
			continue // deleted by another process, or none of ours
		}
		switch {
		case strings.HasPrefix(fi.Name(), tempPrefix) && time.Since(fi.ModTime()) > tempAge:
			_ = d.root.Remove(fi.Name()) // another process may have been first
		case strings.HasSuffix(fi.Name(), entrySuffix):
			files = append(files, fi)
			d.used += fi.Size()
		}
	}
	if d.used+size <= d.max {
		return nil
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, fi := range files {
		if d.used+size <= d.max/100*evictTo {
			break
		}
		if err := d.root.Remove(fi.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("evicting cached table: %w", err)
		}
		d.used -= fi.Size()
	}
	return nil
}
