// SPDX-License-Identifier: Apache-2.0

// Command vm is process 1 of the virtual machines that .ci/vm.sh starts to run
// tests on other kernels. It loads the modules of its initramfs, makes the
// host's file system its root, read-only, with /proc, /sys, /dev and a /dev/shm
// to write to of its own, runs one command as a child and powers off.
//
// The command comes from the kernel's command line, behind "--": the kernel
// hands what it does not know to process 1. The last line on the console is
// "vm: exit status N", or "vm: " and an error.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// root is where the host's file system is mounted before it becomes the root.
const root = "/host"

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Printf("vm: %v\n", err)
	} else {
		fmt.Printf("vm: exit status %d\n", status)
	}
	unix.Sync()
	// A process 1 that returns is a panic of the kernel.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Printf("vm: powering off: %v\n", err)
	}
	select {}
}

func run(command []string) (status int, err error) {
	if len(command) == 0 {
		return 0, errors.New("no command behind -- on the kernel's command line")
	}
	if err := loadModules("/modules"); err != nil {
		return 0, err
	}
	if err := enterHost(); err != nil {
		return 0, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Dir = "/"
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return 0, err
	}
	// A child that a signal ended has status -1, which is no success either.
	return cmd.ProcessState.ExitCode(), nil
}

// loadModules inserts the modules of a folder in the order of their names.
func loadModules(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := loadModule(name); err != nil {
			return fmt.Errorf("loading module %s: %w", name, err)
		}
	}
	return nil
}

func loadModule(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// enterHost mounts the host's file system and what a test expects on it, and
// makes it the root.
func enterHost() error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, m := range []mount{
		{"host", "", "virtiofs", unix.MS_RDONLY, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"tracefs", "/sys/kernel/tracing", "tracefs", 0, ""},
		{"debugfs", "/sys/kernel/debug", "debugfs", 0, ""},
		{"bpf", "/sys/fs/bpf", "bpf", 0, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
		{"devpts", "/dev/pts", "devpts", 0, ""},
		{"tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777"},
		{"tmpfs", "/run", "tmpfs", 0, ""},
	} {
		target := filepath.Join(root, m.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.fstype, target, err)
		}
	}
	if err := mountRoots(); err != nil {
		return err
	}
	// The initramfs cannot be pivoted away (pivot_root(2)): move the new root
	// over it, as switch_root does.
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("entering %s: %w", root, err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving %s to /: %w", root, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("entering the new root: %w", err)
	}
	return loopback()
}

// mountRoots gives the other roots of .ci/deps.sh what tests expect in them.
func mountRoots() error {
	dirs, err := filepath.Glob(root + "/var/tmp/unfreed-*/tmp")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return fmt.Errorf("mounting tmpfs on %s: %w", dir, err)
		}
	}
	return nil
}

// loopback brings the loopback interface up, which tests of servers need.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bringing loopback up: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bringing loopback up: %w", err)
	}
	return nil
}
