// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/testutil"
)

const testID = "0123456789abcdef0123456789abcdef01234567"

func openCache(tb testing.TB, dir string) *Cache {
	tb.Helper()
	c, err := OpenCache(dir, 64<<20)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// madeFile writes an ELF file with one function of which the CFA is rsp+param,
// and whose code starts with the given bytes.
func madeFile(tb testing.TB, param byte, n uint64, code ...byte) string {
	tb.Helper()
	var f frames
	f.fde(f.cie(), 0x1000, n, 0x0e, param)
	e := testELF{textAddr: 0x1000, textSize: 0x1000, sections: []testSection{{".eh_frame", 0x8000, f.end()}, {"code", 0, code}}}
	data := e.bytes()
	at := bytes.LastIndex(data, code)
	if len(code) > 0 { // let the text segment hold the code
		copy(data[64+8:], words(uint32(at), 0))         // p_offset
		copy(data[64+32:], words(uint32(len(code)), 0)) // p_filesz
	}
	path := filepath.Join(tb.TempDir(), "made.so")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// cached returns a file's table from c, which must be the one that Extract
// makes.
func cached(t *testing.T, c *Cache, id, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := Extract(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Table(id, f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cache's table differs (-want +got):\n%s", diff)
	}
}

func wantStats(t *testing.T, c *Cache, hits, misses, rejected, unstored int) {
	t.Helper()
	s := c.Stats()
	if got, want := [...]int{s.Hits, s.Misses, s.Rejected, s.Unstored}, [...]int{hits, misses, rejected, unstored}; got != want {
		t.Errorf("hits, misses, rejected, unstored are %v, want %v (%v)", got, want, s.Err)
	}
	if (s.Err != nil) != (rejected+unstored > 0) {
		t.Errorf("unexpected error %v", s.Err)
	}
}

func entries(tb testing.TB, dir string) []string {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	return paths
}

func TestCacheHit(t *testing.T) {
	testutil.NoLeakedFDs(t)
	dir := filepath.Join(t.TempDir(), "deep", "er")
	c := openCache(t, dir)
	for _, name := range []string{"libc", "python", "go"} {
		cached(t, c, testID, realFile(t, name))
	}
	wantStats(t, c, 0, 3, 0, 0)
	for _, name := range []string{"libc", "python", "go"} {
		cached(t, c, "", realFile(t, name))
	}
	wantStats(t, c, 0, 6, 0, 0) // under another name
	c = openCache(t, dir)
	for _, name := range []string{"libc", "python", "go"} {
		cached(t, c, testID, realFile(t, name))
	}
	wantStats(t, c, 3, 0, 0, 0)
	for _, path := range entries(t, dir) {
		fi, err := os.Stat(path)
		if err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v", path, fi.Mode(), err)
		}
	}
}

func TestCacheNil(t *testing.T) {
	var c *Cache
	cached(t, c, testID, realFile(t, "libc"))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(CacheStats{}, c.Stats()); diff != "" {
		t.Error(diff)
	}
}

func TestCacheReportsExtractErrors(t *testing.T) {
	c := openCache(t, filepath.Join(t.TempDir(), "cache"))
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Table("", open(t, path)); !errors.Is(err, ErrNotELF) {
		t.Errorf("got %v, want %v", err, ErrNotELF)
	}
	if n := len(entries(t, c.dir.root.Name())); n != 0 {
		t.Errorf("%d files in the cache", n)
	}
}

// Files that claim the same build id have each their own table.
func TestCacheForgedBuildID(t *testing.T) {
	c := openCache(t, filepath.Join(t.TempDir(), "cache"))
	libc, forged := madeFile(t, 16, 64), madeFile(t, 32, 64)
	for range 2 {
		cached(t, c, testID, forged)
		cached(t, c, testID, libc)
	}
	wantStats(t, c, 2, 2, 0, 0)
	cached(t, c, "../../../etc/passwd", libc)
	cached(t, c, strings.Repeat("a", 4096), libc)
	wantStats(t, c, 3, 3, 0, 0)
	for _, path := range entries(t, c.dir.root.Name()) {
		name := filepath.Base(path)
		if !strings.HasPrefix(name, testID+"-") && !strings.HasPrefix(name, "none-") {
			t.Errorf("unexpected file %q", name)
		}
	}
}

// The code of a function as long as a signal trampoline decides its row, and
// is not part of what an entry is found by.
func TestCacheForgedCode(t *testing.T) {
	c := openCache(t, filepath.Join(t.TempDir(), "cache"))
	trampoline := []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}
	other := []byte{0x48, 0xc7, 0xc0, 0x0e, 0, 0, 0, 0x0f, 0x05}
	cached(t, c, testID, madeFile(t, 16, 9, trampoline...))
	wantStats(t, c, 0, 1, 0, 0)
	cached(t, c, testID, madeFile(t, 16, 9, other...))
	wantStats(t, c, 0, 2, 1, 0)
	cached(t, c, testID, madeFile(t, 16, 9, other...))
	wantStats(t, c, 1, 2, 1, 0)
}

func TestCacheDamagedEntries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c := openCache(t, dir)
	path := realFile(t, "libc")
	cached(t, c, testID, path)
	entry := entries(t, dir)[0]
	whole, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string]func([]byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"cut in header": func(b []byte) []byte { return b[:50] },
		"cut in table":  func(b []byte) []byte { return b[:len(b)-4] },
		"longer":        func(b []byte) []byte { return append(b, 0, 0, 0, 0) },
		"huge counts":   func(b []byte) []byte { copy(b[12:], words(1<<31, 1<<31, 1<<31, 1<<31)); return b },
	}
	for _, at := range []int{0, 7, 8, 12, 16, 20, 24, 28, 40, 70, 98, headerSize, len(whole) / 2, len(whole) - 1} {
		damages[fmt.Sprintf("byte %d", at)] = func(b []byte) []byte { b[at] ^= 0x40; return b }
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			c := openCache(t, dir)
			if err := os.WriteFile(entry, damage(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			cached(t, c, testID, path)
			wantStats(t, c, 0, 1, 1, 0)
			cached(t, c, testID, path)
			wantStats(t, c, 1, 1, 1, 0)
		})
	}
}

func TestCacheRenamedEntry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c := openCache(t, dir)
	a, b := madeFile(t, 16, 64), madeFile(t, 32, 64)
	cached(t, c, testID, a)
	of16 := entries(t, dir)[0]
	cached(t, c, testID, b)
	for _, path := range entries(t, dir) {
		if path != of16 {
			if err := os.Rename(of16, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	cached(t, c, testID, b)
	wantStats(t, c, 0, 3, 1, 0)
}

func TestCacheBound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	path := realFile(t, "libstdc++")
	c := openCache(t, dir)
	cached(t, c, "", path)
	fi, err := os.Stat(entries(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	one := fi.Size()
	stale, fresh := filepath.Join(dir, tempPrefix+"old"), filepath.Join(dir, tempPrefix+"new")
	foreign := filepath.Join(dir, "README")
	for _, name := range []string{stale, fresh, foreign} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * tempAge)
	if err := errors.Join(os.Chtimes(stale, old, old), os.Chtimes(foreign, old, old)); err != nil {
		t.Fatal(err)
	}

	c, err = OpenCache(dir, 5*one)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := open(t, path)
	for i := range 12 {
		id := fmt.Sprintf("%02x", i)
		if _, err := c.Table(id, f); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Table("00", f); err != nil { // in use all the time
			t.Fatal(err)
		}
		total := int64(0)
		for _, path := range entries(t, dir) {
			if fi, err := os.Stat(path); err == nil {
				total += fi.Size()
			}
		}
		if total > 5*one {
			t.Fatalf("%d bytes after %d tables, at most %d", total, i, 5*one)
		}
		// The file system's clock ticks every few milliseconds: make the
		// order of use plain to see.
		for k, path := range entries(t, dir) {
			if strings.HasSuffix(path, entrySuffix) && !strings.HasPrefix(filepath.Base(path), "00-") {
				at := time.Now().Add(-time.Minute + time.Duration(k)*time.Second)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if s := c.Stats(); s.Misses != 12 || s.Unstored != 0 {
		t.Errorf("the entry in use was evicted, or one not kept: %+v", s)
	}
	for name, want := range map[string]bool{stale: false, fresh: true, foreign: true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}

	small, err := OpenCache(dir, one-1)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	cached(t, small, "77", path)
	if s := small.Stats(); s.Unstored != 1 || !errors.Is(s.Err, ErrTooLarge) {
		t.Errorf("a table larger than the cache: %+v", s)
	}
}

func TestCacheDirectoryTrust(t *testing.T) {
	testutil.NoLeakedFDs(t)
	base := t.TempDir()
	open, link, file := filepath.Join(base, "open"), filepath.Join(base, "link"), filepath.Join(base, "file")
	good := filepath.Join(base, "good")
	for _, err := range []error{
		os.Mkdir(open, 0o700), os.Chmod(open, 0o750), os.Mkdir(good, 0o700),
		os.Symlink(good, link), os.WriteFile(file, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dirs := map[string]string{open: "chmod 0700", link: "symbolic link"}
	if os.Geteuid() == 0 {
		other := filepath.Join(base, "other")
		if err := errors.Join(os.Mkdir(other, 0o700), os.Chown(other, 12345, 0)); err != nil {
			t.Fatal(err)
		}
		dirs[other] = "does not belong to user 0"
	}
	for dir, want := range dirs {
		_, err := OpenCache(dir, 1<<20)
		var bad *DirError
		if !errors.As(err, &bad) || bad.Dir != dir || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
	if _, err := OpenCache(file, 1<<20); err == nil {
		t.Error("a file was opened as a cache")
	}
	if _, err := OpenCache(good, 0); err == nil {
		t.Error("a cache of no size was opened")
	}
}

func TestCacheDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c := openCache(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	cached(t, c, testID, realFile(t, "libc"))
	wantStats(t, c, 0, 1, 0, 1)
	if err := c.Stats().Err; !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestCacheConcurrently(t *testing.T) {
	testutil.NoLeakedFDs(t)
	dir := filepath.Join(t.TempDir(), "cache")
	f, err := os.Open(realFile(t, "libstdc++"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := Extract(f)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 { // as many processes
		c, err := OpenCache(dir, 400<<10) // room for three entries
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range 4 {
			wg.Go(func() {
				for k := range 6 {
					got, err := c.Table(fmt.Sprintf("%02x", (i+k)%5), f)
					if err != nil || !cmp.Equal(want, got) {
						t.Errorf("table differs, %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, path := range entries(t, dir) {
		if strings.HasPrefix(filepath.Base(path), tempPrefix) {
			t.Errorf("%s was left", path)
		}
	}
}

func TestDefaultCacheDir(t *testing.T) {
	dir, err := DefaultCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && dir != "/var/cache/unfreed" {
		t.Errorf("root's cache is %q", dir)
	}
	if os.Geteuid() != 0 && filepath.Base(dir) != "unfreed" {
		t.Errorf("cache is %q", dir)
	}
}

// The version in the digest is the one that is linked in.
func TestExtractorVersion(t *testing.T) {
	mod, err := os.ReadFile(testutil.Path(t, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "\t"+extractorVersion) {
		t.Errorf("go.mod requires another version than %q: change it, which renews all cached tables", extractorVersion)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	good := &entry{probes: []probe{{0x1000, 9}}, table: &Table{
		Pages: []uint32{1, 1, 3}, Rows: []uint32{0, 0x00100001, 0x01000000},
		Infos: []Info{invalid, {BaseReg: RegSP, Param: 8}},
	}}
	var b bytes.Buffer
	if err := good.encode(&b); err != nil {
		f.Fatal(err)
	}
	if int64(b.Len()) != good.size() {
		f.Fatalf("%d bytes written, %d announced", b.Len(), good.size())
	}
	if e, err := decodeEntry(bytes.NewReader(b.Bytes()), good.size()); err != nil {
		f.Fatal(err)
	} else if diff := cmp.Diff(good, e, cmp.AllowUnexported(entry{}, probe{})); diff != "" {
		f.Fatal(diff)
	}
	f.Add(b.Bytes(), false)
	f.Add(b.Bytes(), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			reseal(data)
		}
		e, err := decodeEntry(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		end := uint64(len(e.table.Pages)+1) << pageBits
		for addr := uint64(0); addr < end; addr += 1 + end/1000 {
			lookup(e.table, addr)
		}
		var again bytes.Buffer
		if err := e.encode(&again); err != nil || !bytes.Equal(again.Bytes(), data) {
			t.Errorf("decoding and encoding gives other bytes, %v", err)
		}
	})
}

// reseal makes the sums of an entry right, so that a fuzzer gets past them.
func reseal(data []byte) {
	if len(data) < headerSize {
		return
	}
	var h entryHeader
	if _, err := binary.Decode(data, binary.LittleEndian, &h); err != nil {
		return
	}
	h.BodySum = crc32.Checksum(data[headerSize:], castagnoli)
	copy(data, h.seal())
}
