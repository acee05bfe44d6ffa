// SPDX-License-Identifier: Apache-2.0

// Package doctor finds out what this kernel, these privileges and a target
// allow, before anyone attaches: every finding has a state, a reason where it is
// not well, and a remedy where there is one.
//
// It asks by trying, as the rest of the project does, and compares no version
// numbers: the BPF programs are loaded, functions are looked up and unwind
// tables extracted, the very things that an attach would do. It sets no probe,
// changes nothing and writes no file. Of the target it reads /proc, memory and
// mapped files.
//
// Check gathers; Text renders for people; the fields of Report are the JSON
// schema of docs/doctor.md.
package doctor

import (
	"context"

	"golang.org/x/sys/unix"
)

// SchemaVersion is the version of the JSON form. It rises when a field changes
// its meaning or goes; new fields and findings alone do not raise it.
const SchemaVersion = 1

// State says how well something is.
type State string

// The states.
const (
	OK       State = "ok"       // there
	Degraded State = "degraded" // there, or replaced, with a drawback that Reason names
	Missing  State = "missing"  // not there
	Unknown  State = "unknown"  // it could not be found out, mostly for lack of privileges
)

// Area is what a finding is about.
type Area string

// The areas, in the order of a report.
const (
	Privileges Area = "privileges"
	Kernel     Area = "kernel"
	Target     Area = "target"
)

// Finding is the answer to one question.
type Finding struct {
	Area  Area   `json:"area"`
	ID    string `json:"id"`   // stable identifier, "uprobe_links"
	Name  string `json:"name"` // for people
	State State  `json:"state"`
	// Required says that attach cannot work where State is Missing.
	Required bool   `json:"required"`
	Detail   string `json:"detail"`           // what was found
	Reason   string `json:"reason,omitempty"` // why State is not OK, and what follows from it
	Remedy   string `json:"remedy,omitempty"` // what to do about it

	// Err is the error of package proc by which attach would end, if it is one.
	Err error `json:"-"`
}

// Report is everything that was found.
type Report struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"` // of unfreed
	Kernel  string `json:"kernel"`  // release of the running kernel
	Machine string `json:"machine"` // "x86_64"
	// Attach says that attach would work, so far as can be known without
	// attaching.
	Attach bool `json:"attach_works"`
	// Process is the target; nil if none was asked for or it could not be
	// opened.
	Process  *Process  `json:"process,omitempty"`
	Findings []Finding `json:"findings"`
}

// Process names the target.
type Process struct {
	PID     int      `json:"pid"`
	Exe     string   `json:"exe"`
	Command []string `json:"command"`
}

// Options say what to look at.
type Options struct {
	Version string
	// PID of the target; 0 looks at the kernel and the privileges only.
	PID int
}

// Check looks at everything. The report is complete whatever is wrong; an error
// means only that ctx ended first.
func Check(ctx context.Context, o Options) (*Report, error) {
	r := &Report{Schema: SchemaVersion, Version: o.Version, Findings: []Finding{}}
	r.Kernel, r.Machine = system()
	for _, check := range []func(context.Context, Options) []Finding{
		privileges, kernel, r.target,
	} {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		r.Findings = append(r.Findings, check(ctx, o)...)
	}
	r.Attach = r.Blocked() == nil
	return r, context.Cause(ctx)
}

// Blocked returns the finding for which attach would not work, or nil. Of several
// it is the one that attach would meet first, or that explains the others.
func (r *Report) Blocked() *Finding {
	for _, area := range []Area{Privileges, Target, Kernel} {
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Area == area && f.Required && f.State == Missing {
				return f
			}
		}
	}
	return nil
}

// system returns the running kernel's release and the machine.
func system() (release, machine string) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil { // fails for bad pointers only
		return "", ""
	}
	return unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
}
