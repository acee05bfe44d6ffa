// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/report"
)

// target looks at the process, from what it is to what of it can be unwound.
func (r *Report) target(ctx context.Context, o Options) []Finding {
	if o.PID == 0 {
		return nil
	}
	f := Finding{Area: Target, ID: "process", Name: "process", State: OK, Required: true}
	p, err := proc.Open(o.PID)
	if err != nil {
		f.State, f.Detail, f.Reason, f.Err = Missing, fmt.Sprintf("PID %d cannot be opened", o.PID), reasonOf(err), err
		f.Remedy = openRemedy(err)
		return []Finding{f}
	}
	defer p.Close()
	r.Process = &Process{PID: p.PID(), Exe: p.Exe(), Command: p.Command()}
	f.Detail = fmt.Sprintf("PID %d, %s", p.PID(), p.Exe())

	findings := []Finding{f, class(p), namespaces(p), threads(p)}
	images := newImages(p)
	defer images.close()
	maps, err := p.Maps()
	if err != nil {
		return append(findings, Finding{Area: Target, ID: "mappings", Name: "mappings", State: Missing, Required: true,
			Detail: "cannot be read", Reason: err.Error(), Err: err})
	}
	// The vDSO and anonymous code are not among the files.
	code := executable(maps)
	findings = append(findings, images.readable(code), memory(p))
	findings = append(findings, functions(p, maps)...)
	return append(findings, interpreter(p, maps, images), images.unwindable(ctx, code))
}

// reasonOf leaves out of an error what the finding says already.
func reasonOf(err error) string {
	var denied *proc.PermissionError
	if errors.As(err, &denied) {
		return denied.Why
	}
	text := err.Error()
	if _, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(text, "opening process ") {
		return rest
	}
	return text
}

func openRemedy(err error) string {
	var denied *proc.PermissionError
	var thread *proc.ThreadError
	switch {
	case errors.As(err, &denied):
		return denied.Remedy
	case errors.As(err, &thread):
		return fmt.Sprintf("look at the process: unfreed doctor %d", thread.PID)
	case errors.Is(err, proc.ErrNoProcess), errors.Is(err, proc.ErrExited), errors.Is(err, proc.ErrZombie):
		return "list the candidates: pgrep -af python"
	case errors.Is(err, proc.ErrKernelThread):
		return "give the PID of a program: pgrep -af python"
	}
	return ""
}

// class says whether it is a 64-bit program.
func class(p *proc.Process) Finding {
	f := Finding{Area: Target, ID: "class", Name: "program", State: OK, Required: true, Detail: "64-bit"}
	switch class, err := p.Class(); {
	case err != nil:
		f.State, f.Detail, f.Reason, f.Err = Missing, "cannot be read", err.Error(), err
	case class != elf.ELFCLASS64:
		f.State, f.Detail = Missing, "32-bit"
		f.Reason, f.Remedy = "32-bit processes cannot be traced", "run a 64-bit build of the program"
	}
	return f
}

// namespaces says which namespaces the target has to itself. None is in the
// way: it tells a container from a process of this machine.
func namespaces(p *proc.Process) Finding {
	f := Finding{Area: Target, ID: "namespaces", Name: "namespaces", State: OK}
	var own []string
	for _, ns := range []struct{ name, label string }{{"mnt", "mount"}, {"pid", "PID"}, {"user", "user"}} {
		_, ino, err := p.Namespace(ns.name)
		if err != nil {
			f.State, f.Reason = Unknown, err.Error()
			return f
		}
		var st unix.Stat_t
		if unix.Stat("/proc/self/ns/"+ns.name, &st) == nil && st.Ino != ino {
			own = append(own, ns.label)
		}
	}
	f.Detail = "the same as ours"
	if len(own) > 0 {
		f.Detail = strings.Join(own, ", ") + " of its own, as in a container"
	}
	if pids, err := p.NSPIDs(); err == nil && len(pids) > 1 {
		f.Detail += fmt.Sprintf("; inside it is PID %d", pids[len(pids)-1])
	}
	return f
}

// threads says how many threads there are.
func threads(p *proc.Process) Finding {
	f := Finding{Area: Target, ID: "threads", Name: "threads", State: OK}
	tids, err := p.Threads()
	if err != nil {
		f.State, f.Reason = Unknown, err.Error()
		return f
	}
	f.Detail = plural(len(tids), "thread")
	return f
}

// memory says how much memory is resident, and thereby whether memory can be
// read at all.
func memory(p *proc.Process) Finding {
	f := Finding{Area: Target, ID: "memory", Name: "memory", State: OK}
	rss, err := p.RSS()
	if err != nil {
		f.State, f.Reason = Unknown, err.Error()
		return f
	}
	f.Detail = report.Bytes(rss) + " resident"
	return f
}
