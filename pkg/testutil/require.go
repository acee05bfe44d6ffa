// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Strict reports whether a precondition that does not hold must fail the test
// instead of skipping it (REQUIRE_BPF=1).
func Strict() bool { return os.Getenv("REQUIRE_BPF") == "1" }

// Skipf ends the test because something is missing, which the message must
// name: as a skip, or as a failure if [Strict].
func Skipf(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if Strict() {
		tb.Fatalf("REQUIRE_BPF=1 and "+format, args...)
	}
	tb.Skipf(format, args...)
}

// RequireRoot ends the test by [Skipf] unless it runs as root.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Skipf(tb, "root is missing (run `sudo make test`)")
	}
}

// RequireBPF ends the test by [Skipf] unless it runs as root on a kernel where
// a BPF program can be loaded and a uprobe link made.
func RequireBPF(tb testing.TB) {
	tb.Helper()
	RequireRoot(tb)
	if err := uprobeWorks(); err != nil {
		Skipf(tb, "a working uprobe is missing: %v", err)
	}
}

// RequireTool ends the test by [Skipf] unless every named program is found in
// PATH, and returns the path of the first.
func RequireTool(tb testing.TB, names ...string) string {
	tb.Helper()
	var first string
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			Skipf(tb, "the program %q is missing (install it with .ci/deps.sh)", name)
		}
		if first == "" {
			first = path
		}
	}
	return first
}

// uprobeWorks tries once per test binary to put a uprobe on this very binary's
// entry point, which has run already and never runs again.
var uprobeWorks = sync.OnceValue(func() error {
	const self = "/proc/self/exe"
	offset, err := entryOffset(self)
	if err != nil {
		return err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "require_bpf",
		Type:         ebpf.Kprobe,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	if err != nil {
		return fmt.Errorf("loading a BPF program: %w", err)
	}
	defer prog.Close()
	ex, err := link.OpenExecutable(self)
	if err != nil {
		return fmt.Errorf("opening %q: %w", self, err)
	}
	up, err := ex.Uprobe("entry", prog, &link.UprobeOptions{Address: offset, PID: os.Getpid()})
	if err != nil {
		return fmt.Errorf("making a uprobe link: %w", err)
	}
	return up.Close()
})

// entryOffset returns the file offset of an executable's entry point.
func entryOffset(path string) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("reading %q: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && f.Entry >= p.Vaddr && f.Entry-p.Vaddr < p.Filesz {
			return f.Entry - p.Vaddr + p.Off, nil
		}
	}
	return 0, errors.New("finding the entry point: in no segment")
}
