// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/kfeature"
)

const newerKernel = "run a kernel of Linux 6.1 or later, with the options that distributions set"

// feature is a kernel feature that the programs need.
type feature struct {
	id, name string
	feature  kfeature.Feature
	remedy   string // newerKernel if empty
}

// features are those that nothing stands in for. What kinds of links there are
// is a question of its own: see uprobeLinks.
var features = []feature{
	{id: "btf", name: "type information", feature: kfeature.BTF,
		remedy: "run a kernel with CONFIG_DEBUG_INFO_BTF=y, as those of distributions are; in a container, mount /sys"},
	{id: "ring_buffer", name: "ring buffer", feature: kfeature.RingBuffer},
	{id: "task_storage", name: "task storage", feature: kfeature.TaskStorage},
	{id: "bpf_loop", name: "bpf_loop", feature: kfeature.Loop},
	{id: "sleepable_uprobes", name: "sleepable programs", feature: kfeature.SleepableUprobe},
	{id: "exec_tracepoint", name: "exec tracepoint", feature: kfeature.ExecTracepoint},
}

func kernel(context.Context, Options) []Finding {
	var findings []Finding
	for _, f := range features {
		findings = append(findings, f.finding(kfeature.Have(f.feature)))
	}
	links, mode, err := uprobeLinks()
	findings = append(findings, links)
	if err == nil {
		findings = append(findings, programs(mode))
	}
	return findings
}

// finding makes a finding of the answer to whether a feature is there.
func (x *feature) finding(err error) Finding {
	f := Finding{Area: Kernel, ID: x.id, Name: x.name, State: OK, Required: true, Detail: "available"}
	switch {
	case err == nil:
	case errors.Is(err, kfeature.ErrNotSupported):
		f.State, f.Detail, f.Reason, f.Remedy = Missing, "not available", x.feature.Doc(), x.remedy
		if f.Remedy == "" {
			f.Remedy = newerKernel
		}
	default:
		f.unknown(err)
	}
	return f
}

// unknown notes that a question could not be asked.
func (f *Finding) unknown(err error) {
	f.State, f.Detail, f.Reason = Unknown, "could not be asked for", err.Error()
	if errors.Is(err, fs.ErrPermission) {
		f.Reason, f.Remedy = "loading a BPF program is not permitted", "run it with sudo"
	}
}

// uprobeLinks asks for the best way to probe. An error says that none can be
// tried.
func uprobeLinks() (Finding, bpfobj.Mode, error) {
	f := Finding{Area: Kernel, ID: "uprobe_links", Name: "uprobe links", State: OK, Required: true}
	best, err := attach.Supported()
	if err != nil {
		f.unknown(err)
		return f, 0, err
	}
	mode := bpfobj.ModePerf
	switch best {
	case attach.ModeSession:
		mode = bpfobj.ModeSession
		f.Detail = "sessions: one program at entry and return"
	case attach.ModeMulti:
		mode = bpfobj.ModeMulti
		f.State, f.Detail = Degraded, "multi-uprobe links with return probes"
		f.Reason = "no uprobe sessions (Linux 6.13): each allocation costs a little more, and functions that throw C++ exceptions are not probed"
		f.Remedy = "a newer kernel; the numbers of all other functions are the same"
	default:
		f.State, f.Detail = Degraded, "one perf event for each function"
		f.Reason = "no multi-uprobe links (Linux 6.6): attaching takes longer, each allocation costs a little more, and functions that throw C++ exceptions are not probed"
		f.Remedy = "a newer kernel; the numbers of all other functions are the same"
	}
	return f, mode, nil
}

// anyLayout is of CPython 3.12's kind. The programs are verified the same
// whatever the numbers are, and none runs here.
var anyLayout = bpfobj.PythonLayout{
	CodeMask: ^uint64(0), FrameSize: 88, FrameOwner: 70, EntryValue: 3, EntryIsShim: true,
}

// programs loads the programs that attach would use, with the smallest of
// tables, and frees them.
func programs(mode bpfobj.Mode) Finding {
	f := Finding{Area: Kernel, ID: "programs", Name: "BPF programs", State: OK, Required: true}
	layout := anyLayout
	start := time.Now()
	objects, err := bpfobj.Load(bpfobj.Options{
		Mode: mode, Native: true, Python: &layout, SampleBytes: 1,
		MaxLive: 1, MaxSites: 1, Pages: 2, Rows: 2, Infos: 1,
		PIDNSIno: initialPIDNamespace, PIDNSTgid: os.Getpid(),
	})
	// The verifier refuses with EACCES too, which is no lack of privileges.
	var refused *ebpf.VerifierError
	switch {
	case err == nil:
		objects.Close()
		f.Detail = fmt.Sprintf("verified and loaded in %.1f s", time.Since(start).Seconds())
	case errors.Is(err, fs.ErrPermission) && !errors.As(err, &refused):
		f.unknown(err)
	default:
		f.State, f.Detail, f.Reason = Missing, "refused by the kernel", err.Error()
		f.Remedy = newerKernel + "; if it is one, report this with the output of `unfreed doctor --json`"
	}
	return f
}
