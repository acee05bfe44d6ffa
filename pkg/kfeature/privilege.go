// SPDX-License-Identifier: Apache-2.0

package kfeature

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is a capability's number (include/uapi/linux/capability.h).
type Capability uint8

// The capabilities that matter for watching a process.
const (
	CapSysPtrace   Capability = unix.CAP_SYS_PTRACE   // look into processes of others
	CapSysAdmin    Capability = unix.CAP_SYS_ADMIN    // implies CapPerfmon and CapBPF
	CapSysResource Capability = unix.CAP_SYS_RESOURCE // exceed limits, such as locked memory before Linux 5.11
	CapPerfmon     Capability = unix.CAP_PERFMON      // set probes, read memory in BPF programs
	CapBPF         Capability = unix.CAP_BPF          // load BPF programs
)

// String returns the name that man 7 capabilities and container tools use.
func (c Capability) String() string {
	switch c {
	case CapSysPtrace:
		return "CAP_SYS_PTRACE"
	case CapSysAdmin:
		return "CAP_SYS_ADMIN"
	case CapSysResource:
		return "CAP_SYS_RESOURCE"
	case CapPerfmon:
		return "CAP_PERFMON"
	case CapBPF:
		return "CAP_BPF"
	}
	return fmt.Sprintf("CAP_%d", uint8(c))
}

// Capabilities returns those that matter, in the order in which one misses
// them.
func Capabilities() []Capability {
	return []Capability{CapBPF, CapPerfmon, CapSysPtrace, CapSysAdmin, CapSysResource}
}

// CapabilitySet is a set of capabilities as the kernel keeps it: bit n is
// capability n.
type CapabilitySet uint64

// Has reports whether the set allows what c allows: CAP_SYS_ADMIN stands for
// the two that were split off it in Linux 5.8 (bpf_capable, perfmon_capable of
// include/linux/capability.h).
func (s CapabilitySet) Has(c Capability) bool {
	if c < 64 && s&(1<<c) != 0 {
		return true
	}
	return (c == CapBPF || c == CapPerfmon) && s&(1<<CapSysAdmin) != 0
}

// Missing returns those of the capabilities given that the set lacks.
func (s CapabilitySet) Missing(of ...Capability) []Capability {
	var missing []Capability
	for _, c := range of {
		if !s.Has(c) {
			missing = append(missing, c)
		}
	}
	return missing
}

// Setting is a number of /proc/sys, or the reason why it could not be read: an
// fs.ErrNotExist if this kernel does not have it.
type Setting struct {
	Name  string // as sysctl names it, "kernel.perf_event_paranoid"
	Value int
	Err   error
}

// Privileges is what decides whether this process may do what the kernel can.
type Privileges struct {
	// Effective holds the capabilities in force. In a user namespace they do
	// not count for BPF.
	Effective CapabilitySet

	// UnprivilegedBPF is kernel.unprivileged_bpf_disabled: 0 lets everyone
	// load a few kinds of programs, none of which serves here; 1 nobody until
	// the next boot; 2 nobody until root changes it.
	UnprivilegedBPF Setting

	// PerfEventParanoid is kernel.perf_event_paranoid: what perf events those
	// without CAP_PERFMON may open, -1 all, 2 only of their own user code;
	// Debian and Android know 3 and 4, none.
	PerfEventParanoid Setting

	// PtraceScope is kernel.yama.ptrace_scope: who may look into a process of
	// the same user, 0 everyone, 1 parents, 2 those with CAP_SYS_PTRACE, 3
	// nobody.
	PtraceScope Setting

	// Lockdown is the kernel's lockdown mode: "none", "integrity" or
	// "confidentiality", of which the last forbids BPF programs to read kernel
	// memory. Empty if there is none, or securityfs is not mounted.
	Lockdown string
}

// ReadPrivileges reads the privileges of the calling process.
func ReadPrivileges() (Privileges, error) {
	p := Privileges{
		UnprivilegedBPF:   readSetting("kernel.unprivileged_bpf_disabled"),
		PerfEventParanoid: readSetting("kernel.perf_event_paranoid"),
		PtraceScope:       readSetting("kernel.yama.ptrace_scope"),
	}
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return p, fmt.Errorf("reading capabilities: %w", err)
	}
	defer f.Close()
	if p.Effective, err = parseStatus(f); err != nil {
		return p, fmt.Errorf("reading capabilities: %w", err)
	}
	lockdown, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err == nil {
		p.Lockdown = parseLockdown(string(lockdown))
	}
	return p, nil
}

// parseStatus returns CapEff of /proc/PID/status.
func parseStatus(r io.Reader) (CapabilitySet, error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		value, ok := strings.CutPrefix(s.Text(), "CapEff:")
		if !ok {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("parsing CapEff: %w", err)
		}
		return CapabilitySet(bits), nil
	}
	if err := s.Err(); err != nil {
		return 0, err
	}
	return 0, errors.New("no CapEff in /proc/self/status")
}

// parseLockdown returns the mode in brackets of "none [integrity] confidentiality".
func parseLockdown(text string) string {
	_, mode, _ := strings.Cut(text, "[")
	mode, _, ok := strings.Cut(mode, "]")
	if !ok {
		return ""
	}
	return mode
}

func readSetting(name string) Setting {
	s := Setting{Name: name}
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		s.Err = fmt.Errorf("reading %s: %w", name, err)
		return s
	}
	if s.Value, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		s.Err = fmt.Errorf("parsing %s: %w", name, err)
	}
	return s
}
