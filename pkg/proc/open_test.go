// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
	"golang.org/x/sys/unix"
)

// mappingOf returns the first mapping with a path of the given ending.
func mappingOf(t *testing.T, p *Process, ending string) Mapping {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if strings.HasSuffix(m.Path, ending) {
			return m
		}
	}
	t.Fatalf("no mapping of %q", ending)
	return Mapping{}
}

// content opens a mapping and reads the file.
func content(t *testing.T, p *Process, m Mapping) string {
	t.Helper()
	f, err := p.OpenMapping(m)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	return read(t, f)
}

func read(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenMapping(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.NoLeakedFDs(t)
	for _, test := range []struct {
		name    string
		file    string
		change  func(t *testing.T, path string)
		deleted bool
		replace bool // the name does not lead to the file any more
	}{
		{"plain", "plain", func(*testing.T, string) {}, false, false},
		{"deleted", "deleted", remove, true, true},
		{"replaced", "replaced", replaceFile, true, true},
		{"replaced by a link to itself elsewhere", "linked", relink, true, false},
		{"replaced by a fifo", "fifo", func(t *testing.T, path string) {
			remove(t, path)
			if err := unix.Mkfifo(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}, true, true},
		{"name ends in (deleted)", "odd (deleted)", func(*testing.T, string) {}, false, false},
		{"name ends in (deleted), and is", "gone (deleted)", remove, true, true},
		{"newline and spaces", "new\nline  and \\ ", func(*testing.T, string) {}, false, false},
		{"not UTF-8", "\xff\xfe", func(*testing.T, string) {}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeFile(t, filepath.Join(t.TempDir(), test.file), "content of "+test.name)
			target := startTarget(t, "map", path)
			test.change(t, path)
			p := openProcess(t, target.PID())
			m := mappingOf(t, p, "/"+test.file)
			if m.Path != path || m.Deleted != test.deleted {
				t.Errorf("mapping of %q, deleted %v; want %q, %v", m.Path, m.Deleted, path, test.deleted)
			}
			if got := content(t, p, m); got != "content of "+test.name {
				t.Errorf("content is %q", got)
			}
			// The way for those who may not use map_files.
			f, err := p.findInRoot(m)
			if err == nil {
				f.Close()
			}
			if test.replace != errors.Is(err, ErrReplaced) || !test.replace && err != nil {
				t.Errorf("by name: %v; replaced is %v", err, test.replace)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func replaceFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Rename(writeFile(t, path+".new", "another"), path); err != nil {
		t.Fatal(err)
	}
}

// relink deletes the name that the process mapped and leads it to the same file
// again.
func relink(t *testing.T, path string) {
	t.Helper()
	if err := os.Link(path, path+".other"); err != nil {
		t.Fatal(err)
	}
	remove(t, path)
	if err := os.Symlink(path+".other", path); err != nil {
		t.Fatal(err)
	}
}

func TestOpenMappingOfMemory(t *testing.T) {
	testutil.RequireRoot(t)
	target := startTarget(t, "memfd")
	p := openProcess(t, target.PID())
	m := mappingOf(t, p, "/memfd:a name")
	if !m.Deleted {
		t.Error("a memfd has a name in no directory")
	}
	if got := content(t, p, m); got != "memfd content" {
		t.Errorf("content is %q", got)
	}
	for _, name := range []string{"[stack]", "[vdso]"} {
		if _, err := p.OpenMapping(mappingOf(t, p, name)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("opening %s: %v, want ErrNotRegular", name, err)
		}
	}
}

func TestOpenMappingOfDevice(t *testing.T) {
	testutil.RequireRoot(t)
	target := startTarget(t, "map", "/dev/zero")
	p := openProcess(t, target.PID())
	if _, err := p.OpenMapping(mappingOf(t, p, "/dev/zero")); !errors.Is(err, ErrNotRegular) {
		t.Errorf("got %v, want ErrNotRegular", err)
	}
}

func TestOpenMappingGoneMeanwhile(t *testing.T) {
	testutil.RequireRoot(t)
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "file"), "content")
	target := startTarget(t, "map", path)
	p := openProcess(t, target.PID())
	m := mappingOf(t, p, "/file")
	m.Start, m.End = 0x1000, 0x2000 // as after munmap
	if got := content(t, p, m); got != "content" {
		t.Errorf("by name: content is %q", got)
	}
	remove(t, path)
	if _, err := p.OpenMapping(m); !errors.Is(err, ErrReplaced) {
		t.Errorf("got %v, want ErrReplaced", err)
	}
	other := mappingOf(t, p, "/libc.so.6")
	other.Inode, other.Path = m.Inode, m.Path // as after a mapping of another file at that place
	if _, err := p.OpenMapping(other); !errors.Is(err, ErrReplaced) {
		t.Errorf("got %v, want ErrReplaced", err)
	}
}

func TestOpenMappingInChroot(t *testing.T) {
	testutil.RequireRoot(t)
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "lib/file"), "inside")
	target := startTarget(t, "chroot", root, "/lib/file")
	p := openProcess(t, target.PID())
	m := mappingOf(t, p, "/lib/file")
	if got := content(t, p, m); got != "inside" {
		t.Errorf("content is %q", got)
	}
	f, err := p.findInRoot(m)
	if err != nil {
		t.Fatalf("by name: %v", err)
	}
	f.Close()
}

func TestOpenMappingInMountNamespace(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireTool(t, "unshare")
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "file"), "outside")
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
	script := `mount -t tmpfs none "$1" && printf inside > "$2" && exec "$0" map "$2"`
	target := testutil.Start(t, "unshare", "--mount", "sh", "-c", script, exe, dir, path)
	target.WaitLine("ready")
	p := openProcess(t, target.PID())
	m := mappingOf(t, p, "/file")
	if got := content(t, p, m); got != "inside" {
		t.Errorf("content is %q", got)
	}
	f, err := p.findInRoot(m)
	if err != nil {
		t.Fatalf("by name: %v", err)
	}
	f.Close()
	if f, err = p.OpenInRoot(path); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := read(t, f); got != "inside" {
		t.Errorf("content of %q is %q", path, got)
	}
}

// TestOverlay maps a file of an overlay, which maps and stat number differently
// before Linux 6.8.
func TestOverlay(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireTool(t, "unshare")
	dir := t.TempDir()
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
	script := `mount -t tmpfs none "$1" && cd "$1" && mkdir lower upper work merged && printf lower > lower/file &&
		mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work merged || { echo unsupported; echo ready; exit; }
		exec "$0" map "$1/merged/file"`
	target := testutil.Start(t, "unshare", "--mount", "sh", "-c", script, exe, dir)
	target.WaitLine("ready")
	if strings.Contains(target.Output(), "unsupported") {
		testutil.Skipf(t, "overlayfs is missing")
	}
	p := openProcess(t, target.PID())
	m := mappingOf(t, p, "/file")
	if got := content(t, p, m); got != "lower" {
		t.Errorf("content is %q", got)
	}
	f, err := p.findInRoot(m)
	if err != nil {
		t.Fatalf("by name: %v", err)
	}
	f.Close()
}

func TestOpenInRoot(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.NoLeakedFDs(t)
	outside := writeFile(t, filepath.Join(t.TempDir(), "secret"), "secret")
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "lib/file"), "inside")
	for link, to := range map[string]string{
		"absolute": "/lib/file", "relative": "lib/file", "up": "../../../../lib/file",
		"out": outside, "up-out": strings.Repeat("../", 20) + outside, "loop": "loop",
		"lib/dir": "/lib",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(root, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(filepath.Join(root, "proc"), unix.MNT_DETACH) })
	target := startTarget(t, "chroot", root, "/lib/file")
	p := openProcess(t, target.PID())
	for _, test := range []struct {
		name string
		want error
	}{
		{"/lib/file", nil},
		{"/absolute", nil},
		{"/relative", nil},
		{"/up", nil},
		{"/../../lib/file", nil},
		{"/lib/dir/dir/file", nil},
		{"/out", fs.ErrNotExist},
		{"/up-out", fs.ErrNotExist},
		{outside, fs.ErrNotExist},
		{"/loop", unix.ELOOP},
		{"/lib", ErrNotRegular},
		{"/fifo", ErrNotRegular},
		{"/device", ErrNotRegular},
		{"/proc/self/environ", ErrNotRegular},
		{"/proc/self/root/" + outside, unix.ELOOP},
		{"/lib/file/x", unix.ENOTDIR},
		{"/" + strings.Repeat("a", 300), unix.ENAMETOOLONG},
		{"", fs.ErrNotExist},
		{"/a\x00b", unix.EINVAL},
	} {
		t.Run(strings.ReplaceAll(test.name, "/", "|"), func(t *testing.T) {
			f, err := p.OpenInRoot(test.name)
			if err == nil {
				defer f.Close()
				if got := read(t, f); got != "inside" {
					t.Errorf("content is %q", got)
				}
			}
			if !errors.Is(err, test.want) || errors.Is(err, ErrExited) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestOpenedFileIsReadOnly makes sure that nothing can be written in the
// target's tree through what is handed out.
func TestOpenedFileIsReadOnly(t *testing.T) {
	testutil.RequireRoot(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "file"), "content")
	target := startTarget(t, "map", path)
	p := openProcess(t, target.PID())
	f, err := p.OpenMapping(mappingOf(t, p, "/file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); !errors.Is(err, syscall.EBADF) {
		t.Errorf("writing: %v, want EBADF", err)
	}
}
