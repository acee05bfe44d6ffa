// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/kfeature"
	"github.com/unfreed/unfreed/pkg/proc"
)

// capability is one that attaching uses.
type capability struct {
	id       string
	number   kfeature.Capability
	instead  kfeature.Capability // allows the same
	required bool
	use      string // what it is used for
	without  string // what follows from its lack
}

var capabilities = []capability{
	{
		id: "cap_bpf", number: kfeature.CapBPF, instead: kfeature.CapSysAdmin, required: true,
		use: "loads BPF programs", without: "no BPF program can be loaded",
	},
	{
		id: "cap_perfmon", number: kfeature.CapPerfmon, instead: kfeature.CapSysAdmin, required: true,
		use: "sets probes", without: "no probe can be set",
	},
	{
		id: "cap_sys_ptrace", number: kfeature.CapSysPtrace, instead: kfeature.CapSysPtrace,
		use: "opens other users' processes", without: "only processes of the same user can be opened",
	},
	{
		id: "cap_checkpoint_restore", number: unix.CAP_CHECKPOINT_RESTORE, instead: kfeature.CapSysAdmin,
		use: "opens files deleted since mapped", without: "files that were deleted or replaced since they were mapped cannot be read",
	},
}

func (c *capability) name() string {
	if c.number == unix.CAP_CHECKPOINT_RESTORE {
		return "CAP_CHECKPOINT_RESTORE"
	}
	return c.number.String()
}

func privileges(context.Context, Options) []Finding {
	who, outside := user()
	findings := []Finding{who}
	held, err := kfeature.ReadPrivileges()
	for _, c := range capabilities {
		f := c.check(held.Effective, outside)
		if err != nil {
			f.State, f.Detail, f.Reason, f.Remedy = Unknown, "could not be asked for", err.Error(), ""
		}
		findings = append(findings, f)
	}
	return append(findings, lockdown(held.Lockdown), pidNamespace())
}

// user says who we are, and whether outside the host's user namespace. Nothing
// depends on it: capabilities decide.
func user() (f Finding, outside bool) {
	f = Finding{Area: Privileges, ID: "user", Name: "user", State: OK, Detail: "root"}
	if uid := os.Geteuid(); uid != 0 {
		f.Detail = fmt.Sprintf("uid %d", uid)
	}
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &st) == nil && st.Ino != initialUserNamespace {
		f.Detail += " of a user namespace"
		outside = true
	}
	return f, outside
}

// check tells whether a capability is held. For BPF and other users' processes
// those of a user namespace do not count.
func (c *capability) check(held kfeature.CapabilitySet, outside bool) Finding {
	f := Finding{Area: Privileges, ID: c.id, Name: c.name(), State: OK, Required: c.required, Detail: c.use}
	has := held.Has(c.number) || held.Has(c.instead)
	if has && !outside {
		return f
	}
	f.Detail, f.Reason, f.Remedy = "not held", c.without, "run it with sudo"
	switch {
	case has:
		f.Detail, f.Remedy = "held in a user namespace, where it does not count", "run it as root of the host"
	case os.Geteuid() == 0:
		f.Remedy = "in a container: docker run --cap-add " + strings.TrimPrefix(c.name(), "CAP_")
	}
	f.State = Degraded
	if c.required {
		f.State = Missing
	}
	return f
}

// lockdown tells of the kernel's lockdown mode. Confidentiality forbids BPF
// programs to read the kernel's memory (LOCKDOWN_BPF_READ_KERNEL of
// include/linux/security.h).
func lockdown(mode string) Finding {
	f := Finding{Area: Privileges, ID: "lockdown", Name: "kernel lockdown", State: OK, Required: true, Detail: mode}
	switch mode {
	case "":
		f.Detail = "none"
	case "confidentiality":
		f.State = Missing
		f.Reason = "BPF programs may not read the kernel's memory, which unwinding needs"
		f.Remedy = "boot with lockdown=integrity, or with Secure Boot off"
	}
	return f
}

// pidNamespace tells whether /proc and system calls mean the same process by
// the same number, and whether the host's processes can be reached.
func pidNamespace() Finding {
	f := Finding{Area: Privileges, ID: "pid_namespace", Name: "PID namespace", State: OK}
	self, err := proc.Open(os.Getpid())
	if err != nil {
		// Where /proc is of an outer namespace our number in it is another.
		f.State, f.Detail = Degraded, "not that of /proc"
		f.Reason = "numbers in /proc do not mean the same process in system calls, so only processes that both show can be traced"
		f.Remedy = "run it with the host's PID namespace: docker run --pid=host"
		return f
	}
	defer self.Close()
	_, ino, err := self.PIDNamespace()
	switch {
	case err != nil:
		f.State, f.Reason = Unknown, err.Error()
	case ino == initialPIDNamespace:
		f.Detail = "the host's: every process can be reached"
	default:
		f.Detail = "a container's: only its own processes can be reached"
	}
	return f
}

// Inodes of the host's namespaces: PROC_USER_INIT_INO and PROC_PID_INIT_INO of
// include/linux/proc_ns.h.
const (
	initialUserNamespace = 0xEFFFFFFD
	initialPIDNamespace  = 0xEFFFFFFC
)
