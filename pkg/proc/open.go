// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenMapping opens the file of a mapping for reading: exactly the mapped file,
// also if it was deleted or replaced since. /proc/PID/map_files leads to it and
// needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; otherwise the name is looked up
// in the target's root and the file taken only if device and inode match.
//
// The error is ErrReplaced if the file cannot be had any more, ErrNotRegular
// for mappings of devices, ErrExited when the process is gone. A file system
// that the target controls (FUSE) can make the call block. The content can
// change while it is read.
func (p *Process) OpenMapping(m Mapping) (*os.File, error) {
	if !m.FileBacked() {
		return nil, fmt.Errorf("opening mapping %x-%x of process %d: %w", m.Start, m.End, p.pid, ErrNotRegular)
	}
	f, err := p.openMapFile(m)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, ErrNotRegular) {
		return nil, fmt.Errorf("opening %q of process %d: %w", m.Path, p.pid, err)
	}
	path, rootErr := p.findInRoot(m)
	if rootErr == nil {
		defer path.Close()
		f, rootErr = reopen(path)
	}
	switch {
	case rootErr == nil:
		return f, nil
	case !p.Alive():
		return nil, fmt.Errorf("opening %q of process %d: %w", m.Path, p.pid, ErrExited)
	case errors.Is(rootErr, ErrReplaced) && errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("opening %q of process %d: %w (with CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN it can be read all the same)",
			m.Path, p.pid, rootErr)
	}
	return nil, fmt.Errorf("opening %q of process %d: %w", m.Path, p.pid, rootErr)
}

// openMapFile opens a mapping through /proc/PID/map_files.
func (p *Process) openMapFile(m Mapping) (*os.File, error) {
	name := fmt.Sprintf("map_files/%x-%x", m.Start, m.End)
	path, err := p.openPath(name)
	if err != nil {
		return nil, err
	}
	defer path.Close()
	st, err := regular(path)
	if err != nil {
		return nil, err
	}
	if st.Ino != m.Inode || uint64(st.Dev) != m.Dev {
		// On overlayfs (before Linux 6.8) and btrfs, maps and stat number the
		// same file differently. The range may also have been mapped anew; then
		// the link has another text.
		text, err := p.readlink(name)
		if err != nil {
			return nil, err
		}
		if strings.TrimSuffix(text, deletedSuffix) != strings.TrimSuffix(m.Path, deletedSuffix) {
			return nil, ErrReplaced
		}
	}
	return reopen(path)
}

// findInRoot looks the mapped file up by its name and returns an O_PATH
// descriptor of it. The error is ErrReplaced if the name leads elsewhere.
func (p *Process) findInRoot(m Mapping) (*os.File, error) {
	path, err := p.lookup(m.Path)
	if err == nil && !sameFile(path, m) {
		path.Close()
		err = ErrReplaced
	}
	if err == nil {
		return path, nil
	}
	// maps names files as seen from our root, so for a target that is chrooted
	// into a part of our tree the name starts with that part.
	root, rootErr := p.readlink("root")
	if rootErr != nil || root == "/" {
		return nil, replaced(err)
	}
	inside, ok := strings.CutPrefix(m.Path, root)
	if !ok || !strings.HasPrefix(inside, "/") {
		return nil, replaced(err)
	}
	if path, err = p.lookup(inside); err != nil {
		return nil, replaced(err)
	}
	if !sameFile(path, m) {
		path.Close()
		return nil, ErrReplaced
	}
	return path, nil
}

// replaced types the errors of a name that does not exist any more.
func replaced(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w (%w)", ErrReplaced, err)
	}
	return err
}

// sameFile reports whether a descriptor is of the file that is mapped.
func sameFile(path *os.File, m Mapping) bool {
	var st unix.Stat_t
	var fsys unix.Statfs_t
	if unix.Fstat(int(path.Fd()), &st) != nil || st.Ino != m.Inode {
		return false
	}
	if uint64(st.Dev) == m.Dev {
		return true
	}
	// Here maps shows the device of the file system below (overlayfs before
	// Linux 6.8) or of the whole (btrfs), stat that of the layer or subvolume.
	return unix.Fstatfs(int(path.Fd()), &fsys) == nil &&
		(fsys.Type == unix.OVERLAYFS_SUPER_MAGIC || fsys.Type == unix.BTRFS_SUPER_MAGIC)
}

// OpenInRoot opens a regular file for reading by its absolute name inside the
// target's root: symbolic links and ".." never lead out of it. The error is
// fs.ErrNotExist if there is no such file, ErrNotRegular if it is something
// else, ErrExited when the process is gone.
func (p *Process) OpenInRoot(name string) (*os.File, error) {
	path, err := p.lookup(name)
	if err != nil {
		return nil, fmt.Errorf("opening %q in the root of process %d: %w", name, p.pid, err)
	}
	defer path.Close()
	f, err := reopen(path)
	if err != nil {
		return nil, fmt.Errorf("opening %q in the root of process %d: %w", name, p.pid, err)
	}
	return f, nil
}

// OpenExe opens the executable of the process for reading, also if it was
// deleted or replaced since.
func (p *Process) OpenExe() (*os.File, error) {
	path, err := p.openPath("exe")
	if err != nil {
		return nil, fmt.Errorf("opening executable of process %d: %w", p.pid, err)
	}
	defer path.Close()
	f, err := reopen(path)
	if err != nil {
		return nil, fmt.Errorf("opening executable of process %d: %w", p.pid, err)
	}
	return f, nil
}

// lookup resolves a name inside the target's root to an O_PATH descriptor.
func (p *Process) lookup(name string) (*os.File, error) {
	root, err := p.openPath("root")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(root.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			// A rename elsewhere raced with a ".." of the name (openat2(2)).
			continue
		}
		return nil, &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
}

// openPath opens a link of /proc/PID with O_PATH: what it leads to is not
// opened yet, so a device there notices nothing.
func (p *Process) openPath(name string) (*os.File, error) {
	var fd int
	err := p.at(func(dirfd int) (err error) {
		fd, err = unix.Openat(dirfd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/%s", p.pid, name)), nil
}

// regular refuses everything but regular files, and of these the ones that the
// kernel makes up: reading some of them blocks, consumes or has effects.
func regular(path *os.File) (unix.Stat_t, error) {
	var st unix.Stat_t
	var fsys unix.Statfs_t
	if err := unix.Fstat(int(path.Fd()), &st); err != nil {
		return st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return st, ErrNotRegular
	}
	if err := unix.Fstatfs(int(path.Fd()), &fsys); err != nil {
		return st, err
	}
	switch fsys.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.SECURITYFS_MAGIC:
		return st, fmt.Errorf("%w: it is one of the kernel's", ErrNotRegular)
	}
	return st, nil
}

// reopen turns an O_PATH descriptor of a regular file into one for reading.
// O_NONBLOCK keeps a lease or a lock of the target from blocking the open.
func reopen(path *os.File) (*os.File, error) {
	if _, err := regular(path); err != nil {
		return nil, err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path.Fd()),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// Back to blocking: for a regular file it makes no difference to reads, but
	// os.NewFile would try to poll it.
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Name()), nil
}
