// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/unfreed/unfreed/internal/uprobelink"
)

// attach makes the links of a step to the functions of one file. With an error
// it returns the links made until then.
func (a *Attacher) attach(s step, group []Probe) ([]link.Link, error) {
	file := group[0].File
	// The descriptor leads to the mapped file itself, whatever its name leads
	// to by now. The kernel resolves it once.
	path := fmt.Sprintf("/proc/self/fd/%d", file.file.Fd())
	defer runtime.KeepAlive(file)

	prog := a.program(s)
	if a.mode == ModePerf {
		return a.perf(path, prog, s == stepReturn, group)
	}
	offsets, cookies := make([]uint64, len(group)), make([]uint64, len(group))
	for i := range group {
		offsets[i], cookies[i] = group[i].Offset, group[i].Cookie
	}
	var l link.Link
	var err error
	if prog == a.progs.Session {
		l, err = session(path, prog, offsets, cookies, a.pid)
	} else {
		l, err = multi(path, prog, s == stepReturn, &link.UprobeMultiOptions{
			Addresses: offsets,
			Cookies:   cookies,
			PID:       uint32(a.pid),
		})
	}
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

// program returns the program that the probes of a step run.
func (a *Attacher) program(s step) *ebpf.Program {
	p := &a.progs
	switch {
	case a.mode == ModePerf && s == stepFree:
		return p.PerfFree
	case a.mode == ModePerf && s == stepReturn:
		return p.PerfReturn
	case a.mode == ModePerf:
		return p.PerfEntry
	case s == stepFree:
		return p.Free
	case s == stepReturn:
		return p.Return
	case a.mode == ModeSession:
		return p.Session
	}
	return p.Entry
}

// session makes a link of attach type BPF_TRACE_UPROBE_SESSION, which the
// library cannot.
func session(path string, prog *ebpf.Program, offsets, cookies []uint64, pid int) (link.Link, error) {
	r := uprobelink.Request{Path: path, Offsets: offsets, Cookies: cookies, PID: uint32(pid)}
	fd, err := r.Create(prog, uprobelink.AttachSession)
	if err != nil {
		return nil, fmt.Errorf("making a uprobe session link: %w", err)
	}
	l, err := link.NewFromFD(fd) // owns fd, also when it fails
	if err != nil {
		return nil, fmt.Errorf("taking over a uprobe session link: %w", err)
	}
	return l, nil
}

// multi makes one uprobe_multi link.
func multi(path string, prog *ebpf.Program, ret bool, opts *link.UprobeMultiOptions) (link.Link, error) {
	ex, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	if ret {
		return ex.UretprobeMulti(nil, prog, opts)
	}
	return ex.UprobeMulti(nil, prog, opts)
}

// perf makes one link for each function. The event is bound to the main thread
// of the process, but the kernel runs the programs in every thread that shares
// its memory (uprobe_perf_filter of kernel/trace/trace_uprobe.c).
func (a *Attacher) perf(path string, prog *ebpf.Program, ret bool, group []Probe) ([]link.Link, error) {
	ex, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	attach := ex.Uprobe
	if ret {
		attach = ex.Uretprobe
	}
	var links []link.Link
	for i := range group {
		l, err := attach("", prog, &link.UprobeOptions{
			Address: group[i].Offset,
			Cookie:  group[i].Cookie,
			PID:     a.pid,
		})
		if err != nil {
			return links, fmt.Errorf("probing %s: %w", group[i].Function.Name, err)
		}
		links = append(links, l)
	}
	return links, nil
}
