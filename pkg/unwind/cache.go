// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// contentVersion is part of every digest, so that a change of the extractor or
// of pack makes all cached tables unfindable, to be evicted with time. The
// number is pack's: raise it with every change that alters a table.
const contentVersion = "1 " + extractorVersion

// extractorVersion is the extractor's module version in go.mod; a test keeps
// them the same.
const extractorVersion = "go.opentelemetry.io/ebpf-profiler v0.0.202633"

// Cache keeps tables in a directory. It can be used by any number of
// goroutines, and its directory by any number of processes; all that is in the
// directory may be deleted at any time. A nil *Cache works and keeps nothing.
//
// # What an entry stands for
//
// A build id is what a file says of itself: were it the key, a file in one
// container could claim the build id of libc, and every process on the host
// would then be unwound by its rows. An entry is therefore found by the
// SHA-256 of what decides its table, namely the headers that the extractor is
// shown and the whole of .eh_frame, .debug_frame and .gopclntab. Beyond those
// the extractor looks at little: the file's own name, its entry code, and the
// code of functions nine bytes long, which may be the signal trampoline. The
// entry lists these places with the sum of what was read there, and is used
// only if the file at hand holds the same. As the extractor is deterministic
// and has then seen the same bytes, it would have made the same table.
//
// Files of any mount namespace, deleted files, files without a build id and
// files reinstalled with a new inode all find their entry. The price is the
// hashing, 7 ms for libtorch_cpu, where extraction takes 350.
type Cache struct {
	dir *cacheDir

	mu    sync.Mutex
	stats CacheStats
}

// CacheStats counts what a Cache did since it was opened.
type CacheStats struct {
	Hits     int   // tables taken from the cache
	Misses   int   // tables extracted for want of an entry
	Rejected int   // entries that were damaged or did not fit; counted in Misses too
	Unstored int   // tables that could not be kept; Err says why
	Err      error // the latest reason for Rejected or Unstored
}

// OpenCache opens the cache in a directory, and makes it if need be. Its
// entries together take at most maxBytes; the least recently used give way.
// The directory must belong to the effective user and be closed to all others,
// since its entries decide what root's stacks say: a *DirError tells if not.
// The caller closes the cache.
func OpenCache(dir string, maxBytes int64) (*Cache, error) {
	d, err := openCacheDir(dir, maxBytes)
	if err != nil {
		return nil, err
	}
	return &Cache{dir: d}, nil
}

// Close closes the directory. It can be called on a nil Cache and repeatedly.
func (c *Cache) Close() error {
	if c == nil {
		return nil
	}
	return c.dir.root.Close()
}

// Stats returns the counts so far.
func (c *Cache) Stats() CacheStats {
	if c == nil {
		return CacheStats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// note changes the counts.
func (c *Cache) note(change func(*CacheStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// Table returns the table of an ELF file, from the cache or else by Extract,
// whose errors it returns. A cache that fails is told by Stats only.
//
// buildID only makes the entry's name meaningful to a person; it may be empty
// or wrong.
func (c *Cache) Table(buildID string, f *os.File) (*Table, error) {
	if c == nil {
		return Extract(f)
	}
	size, err := regularSize(f)
	if err != nil {
		return nil, err
	}
	t, err := c.table(buildID, f, size)
	if err != nil {
		return nil, fmt.Errorf("extracting unwind rows of %q: %w", f.Name(), err)
	}
	return t, nil
}

func (c *Cache) table(buildID string, f *os.File, size int64) (*Table, error) {
	s, err := newSource(f, size)
	if err != nil {
		return nil, err
	}
	digest, err := s.digest(contentVersion)
	if err != nil {
		return nil, err
	}
	t, err := c.find(entryName(buildID, digest), digest, s)
	switch {
	case err == nil:
		c.note(func(s *CacheStats) { s.Hits++ })
		return t, nil
	case errors.Is(err, fs.ErrNotExist):
		c.note(func(s *CacheStats) { s.Misses++ })
	default:
		c.note(func(s *CacheStats) { s.Misses++; s.Rejected++; s.Err = err })
	}
	t, m, err := s.extract(contentVersion)
	if err != nil {
		return nil, err
	}
	if m != nil {
		// m.digest, not digest: the file may have changed in between.
		if err := c.store(entryName(buildID, m.digest), m, t); err != nil {
			c.note(func(s *CacheStats) { s.Unstored++; s.Err = err })
		}
	}
	return t, nil
}

// find returns the table of an entry, if it is one for s.
func (c *Cache) find(name string, digest [sha256.Size]byte, s *source) (*Table, error) {
	f, err := c.dir.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading status of cached table: %w", err)
	}
	e, err := decodeEntry(f, fi.Size())
	if err != nil {
		return nil, fmt.Errorf("reading cached table %q: %w", name, err)
	}
	if e.digest != digest {
		return nil, fmt.Errorf("%w: cached table %q is that of another file", ErrCorrupt, name)
	}
	same, err := s.checkProbes(e.probes, e.probeSum)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, fmt.Errorf("%w: cached table %q is that of a file with other code", ErrCorrupt, name)
	}
	c.dir.touch(name, time.Now())
	return e.table, nil
}

// store keeps a table.
func (c *Cache) store(name string, m *image, t *Table) error {
	e := &entry{digest: m.digest, probes: m.probes, table: t}
	m.probeSum.Sum(e.probeSum[:0])
	return c.dir.write(name, e.size(), e.encode)
}

// entryName returns the name of an entry's file. A build id that is not
// lower-case hexadecimal of a usual length is the file's own business.
func entryName(buildID string, digest [sha256.Size]byte) string {
	const maxID = 40 // SHA-1, the linkers' default
	if len(buildID) == 0 || len(buildID) > maxID {
		buildID = "none"
	}
	for _, r := range buildID {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			buildID = "none"
			break
		}
	}
	return buildID + "-" + hex.EncodeToString(digest[:16]) + entrySuffix
}
