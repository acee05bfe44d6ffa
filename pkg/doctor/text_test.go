// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/unfreed/unfreed/pkg/testutil/golden"
)

// healthy is a report of a machine and a target where all is well.
func healthy() *Report {
	return &Report{
		Schema: SchemaVersion, Version: "v1.2.3", Kernel: "6.14.0", Machine: "x86_64", Attach: true,
		Process: &Process{PID: 4242, Exe: "/usr/bin/python3.11", Command: []string{"python3", "service.py"}},
		Findings: []Finding{
			{Area: Privileges, ID: "cap_bpf", Name: "CAP_BPF", State: OK, Required: true, Detail: "loads BPF programs"},
			{Area: Kernel, ID: "uprobe_links", Name: "uprobe links", State: OK, Required: true,
				Detail: "sessions: one program at entry and return"},
			{Area: Target, ID: "python", Name: "Python", State: OK,
				Detail: "CPython 3.11.2 in /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"},
		},
	}
}

// limping is one where attach works with drawbacks, on a target that chose its
// names to do harm.
func limping() *Report {
	r := healthy()
	r.Process.Command = []string{"evil\x1b[31m\nname", strings.Repeat("long", 30)}
	r.Findings[1].State = Degraded
	r.Findings[1].Reason = "no uprobe sessions (Linux 6.13): each allocation costs a little more, and functions that throw C++ exceptions are not probed"
	r.Findings[1].Remedy = "a newer kernel; the numbers of all other functions are the same"
	r.Findings[2] = Finding{Area: Target, ID: "python", Name: "Python", State: Degraded, Detail: "CPython 3.15.0",
		Reason: "stacks are native only: CPython 3.15.0 in \"/opt/\u202eevil\" is not supported: unknown version"}
	return r
}

// blind is one without privileges.
func blind() *Report {
	r := healthy()
	r.Process = nil
	r.Findings = r.Findings[:1]
	for _, name := range []string{"ring buffer", "bpf_loop", "a name longer than its column", "uprobe links"} {
		r.Findings = append(r.Findings, Finding{Area: Kernel, ID: name, Name: name, State: Unknown, Required: true,
			Detail: "could not be asked for", Reason: "loading a BPF program is not permitted", Remedy: "run it with sudo"})
	}
	r.Findings[4].Detail = ""
	return r
}

// stuck is one where attach would not work.
func stuck() *Report {
	r := healthy()
	r.Attach, r.Process = false, nil
	r.Findings[2] = Finding{Area: Target, ID: "process", Name: "process", State: Missing, Required: true,
		Detail: "PID 2 cannot be opened", Reason: `kernel thread "kthreadd"`, Remedy: "give the PID of a program: pgrep -af python"}
	return r
}

func TestText(t *testing.T) {
	for name, report := range map[string]func() *Report{
		"healthy": healthy, "limping": limping, "blind": blind, "stuck": stuck,
	} {
		t.Run(name, func(t *testing.T) {
			got := Text(report(), TextOptions{})
			golden.Compare(t, filepath.Join("testdata", name+".txt"), []byte(got))
			for _, l := range strings.Split(got, "\n") {
				if n := utf8.RuneCountInString(l); n > textWidth && len(strings.Fields(l)) > 1 {
					t.Errorf("a line of %d columns: %s", n, l)
				}
				if strings.ContainsAny(l, "\x1b\u202e") {
					t.Errorf("a line with control characters: %q", l)
				}
			}
		})
	}
}

func TestTextColor(t *testing.T) {
	plain := Text(limping(), TextOptions{})
	colored := Text(limping(), TextOptions{Color: true})
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[32m", "\x1b[33m"} {
		if !strings.Contains(colored, code) {
			t.Errorf("no %q", code)
		}
		colored = strings.ReplaceAll(colored, code, "")
	}
	if colored != plain {
		t.Errorf("colours change the text:\n%s\n%s", plain, colored)
	}
}
