// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
)

const newerKernel = "run a kernel of Linux 6.1 or later, with the options that distributions set"

func kernel(_ context.Context, o Options) []Finding {
	findings := []Finding{btf()}
	for _, f := range o.Features {
		findings = append(findings, f.finding())
	}
	links, mode, err := uprobeLinks()
	findings = append(findings, links)
	if err == nil {
		findings = append(findings, programs(mode))
	}
	return findings
}

// btf asks for the kernel's type information, by which programs find the fields
// of its structures.
func btf() Finding {
	const path = "/sys/kernel/btf/vmlinux"
	f := Finding{Area: Kernel, ID: "btf", Name: "type information", State: OK, Required: true, Detail: path}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		f.State, f.Detail = Missing, "no "+path
		f.Reason = "the programs cannot be fitted to this kernel"
		f.Remedy = "run a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of distributions are; mount /sys in a container"
	} else if err != nil {
		f.State, f.Detail, f.Reason = Unknown, "", err.Error()
	}
	return f
}

func (x *Feature) finding() Finding {
	f := Finding{Area: Kernel, ID: x.ID, Name: x.Name, State: OK, Required: x.Required, Detail: "available"}
	switch {
	case x.Err == nil:
		return f
	case !x.Missing:
		f.unknown(x.Err)
		return f
	case x.Required:
		f.State = Missing
	default:
		f.State = Degraded
	}
	f.Detail = "not available"
	f.Reason, f.Remedy = x.Without, x.Remedy
	if f.Remedy == "" && x.Required {
		f.Remedy = newerKernel
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
	switch {
	case err == nil:
		objects.Close()
		f.Detail = fmt.Sprintf("verified and loaded in %.1f s", time.Since(start).Seconds())
	case errors.Is(err, fs.ErrPermission):
		f.unknown(err)
	default:
		f.State, f.Detail, f.Reason = Missing, "refused by the kernel", err.Error()
		f.Remedy = newerKernel + "; if it is one, report this with the output of `unfreed doctor --json`"
	}
	return f
}
