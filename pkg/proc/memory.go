// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ReadAt reads the target's memory at an address; it makes Process an
// io.ReaderAt. If only the first n bytes can be read they are returned with
// ErrUnmapped. ErrExited and ErrPermission tell the other causes. The target
// runs on meanwhile: what is read may be torn.
func (p *Process) ReadAt(b []byte, addr int64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := p.readMemory(b, addr)
	// process_vm_readv goes by number. If the process still lives, the number
	// was its own all the time.
	if !p.Alive() {
		return 0, fmt.Errorf("reading memory of process %d: %w", p.pid, ErrExited)
	}
	switch {
	case n == len(b):
		return n, nil
	case err == nil, errors.Is(err, unix.EFAULT), errors.Is(err, unix.EIO), errors.Is(err, io.EOF):
		err = ErrUnmapped
	case errors.Is(err, fs.ErrPermission):
		err = p.denied("reading its memory", err)
	}
	return n, fmt.Errorf("reading %d bytes at %#x of process %d: %w", len(b)-n, addr+int64(n), p.pid, err)
}

// readMemory reads as much as there is.
func (p *Process) readMemory(b []byte, addr int64) (n int, err error) {
	if addr < 0 {
		return 0, unix.EFAULT
	}
	for n < len(b) {
		var got int
		if p.vmRead.Load() {
			got, err = p.readMem(b[n:], addr+int64(n))
		} else {
			got, err = p.readVM(b[n:], addr+int64(n))
		}
		switch {
		case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
			// A seccomp profile may forbid the call where /proc is allowed.
			if p.vmRead.Swap(true) {
				return n, err
			}
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || got == 0:
			return n, err
		}
		n += got
	}
	return n, nil
}

func (p *Process) readVM(b []byte, addr int64) (int, error) {
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
	n, err := unix.ProcessVMReadv(p.local, local, remote, 0)
	return max(n, 0), err
}

func (p *Process) readMem(b []byte, addr int64) (int, error) {
	f, err := p.openFile("mem")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := unix.Pread(int(f.Fd()), b, addr)
	return max(n, 0), err
}

// RSS returns the resident memory in bytes. It is exact, from smaps_rollup,
// which walks the target's page tables while holding its address space for
// reading: for moments of interest, not for a loop. Where that file is missing
// it is the kernel's estimate in stat.
func (p *Process) RSS() (int64, error) {
	var rss int64
	err := p.withProc(func(proc procfs.Proc) error {
		if rollup, err := proc.ProcSMapsRollup(); err == nil {
			rss = int64(rollup.Rss)
			return nil
		}
		stat, err := proc.Stat()
		rss = int64(stat.RSS) * int64(os.Getpagesize())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("reading resident memory of process %d: %w", p.pid, err)
	}
	return rss, nil
}
