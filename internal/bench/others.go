// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/unfreed/unfreed/internal/uprobelink"
	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/proc"
)

// memleak is that of libbpf-tools: frame pointers, no Python, one stack id an
// allocation.
func memleak() tool {
	return programTool("memleak (libbpf-tools)", findMemleak, func(pid string) []string {
		return []string{"--perf-max-stack-depth", "127", "-p", pid, "3600"}
	})
}

// findMemleak looks on this machine, and in the release that .ci/deps.sh bench
// bootstraps where Debian's own is too old to have it: its loader runs it here.
func findMemleak() ([]string, error) {
	for _, name := range []string{"memleak-libbpf", "memleak"} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path}, nil
		}
	}
	const root = "/var/tmp/unfreed-forky"
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	path := filepath.Join(root, "usr/sbin/memleak-libbpf")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("finding memleak (install it with .ci/deps.sh bench): %w", errMissing)
	}
	return []string{filepath.Join(lib, "ld-linux-x86-64.so.2"), "--library-path", lib, path}, nil
}

// bpftraceScript does the same job: a stack for every live allocation.
const bpftraceScript = `
uprobe:%[1]s:malloc { @size[tid] = arg0; }
uretprobe:%[1]s:malloc /@size[tid]/ {
	@live[retval] = (@size[tid], ustack(perf, 127));
	delete(@size[tid]);
}
uprobe:%[1]s:free { delete(@live[arg0]); }
`

func bpftrace() tool {
	return programTool("bpftrace script", func() ([]string, error) {
		path, err := exec.LookPath("bpftrace")
		if err != nil {
			return nil, fmt.Errorf("finding bpftrace (install it with .ci/deps.sh bench): %w", errMissing)
		}
		return []string{path}, nil
	}, func(pid string) []string {
		return []string{"-p", pid, "-e", fmt.Sprintf(bpftraceScript, "libc")}
	})
}

// emptyProbes puts programs that do nothing on malloc and free: the price of the
// trap alone. If placed, where unfreed puts its own, else at the functions' start.
func emptyProbes(name string, placed bool) tool {
	return tool{name, func(_ context.Context, t *target) (func() error, error) {
		return attachEmpty(t.pid(), placed)
	}}
}

func attachEmpty(pid int, placed bool) (func() error, error) {
	p, err := proc.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	var table []alloc.Function
	for _, f := range alloc.HostFunctions() {
		if f.Name == "malloc" || f.Name == "free" {
			table = append(table, f)
		}
	}
	planner := attach.NewPlanner(p.OpenMapping, table)
	defer planner.Close()
	probes, _, err := planner.Plan(maps)
	if err != nil {
		return nil, err
	}
	if !placed {
		for i := range probes {
			probes[i].Offset -= probes[i].Placement.Offset
		}
	}
	programs, err := emptyPrograms()
	if err != nil {
		return nil, err
	}
	a, err := attach.NewAttacher(pid, programs, attach.ModeAuto)
	if err != nil {
		return nil, err
	}
	if _, err := a.Add(probes); err != nil {
		a.Close()
		return nil, err
	}
	return a.Close, nil
}

// emptyPrograms loads one program for each kind of link; kernels that lack a kind
// go without it. They live as long as this process.
func emptyPrograms() (attach.Programs, error) {
	load := func(at ebpf.AttachType) (*ebpf.Program, error) {
		return ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "empty", Type: ebpf.Kprobe, AttachType: at, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
	}
	perf, err := load(ebpf.AttachNone)
	if err != nil {
		return attach.Programs{}, fmt.Errorf("loading an empty program: %w", err)
	}
	programs := attach.Programs{PerfEntry: perf, PerfReturn: perf, PerfFree: perf}
	if multi, err := load(ebpf.AttachTraceUprobeMulti); err == nil {
		programs.Free, programs.Entry, programs.Return = multi, multi, multi
	}
	if session, err := load(uprobelink.AttachSession); err == nil {
		programs.Session = session
	}
	return programs, nil
}
