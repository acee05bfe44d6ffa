// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/proc"
)

// capability is one that attaching uses. Since Linux 5.8 the first two can be
// given without CAP_SYS_ADMIN, which implies both.
type capability struct {
	id, name string
	any      []int // one of them suffices
	required bool
	use      string // what it is used for
	without  string // what follows from its lack
}

var capabilities = []capability{
	{
		id: "cap_bpf", name: "CAP_BPF", any: []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, required: true,
		use: "loads BPF programs", without: "no BPF program can be loaded",
	},
	{
		id: "cap_perfmon", name: "CAP_PERFMON", any: []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}, required: true,
		use: "sets probes", without: "no probe can be set",
	},
	{
		id: "cap_sys_ptrace", name: "CAP_SYS_PTRACE", any: []int{unix.CAP_SYS_PTRACE},
		use: "opens other users' processes", without: "only processes of the same user can be opened",
	},
	{
		id: "cap_checkpoint_restore", name: "CAP_CHECKPOINT_RESTORE",
		any: []int{unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_ADMIN}, use: "opens files deleted since mapped",
		without: "files that were deleted or replaced since they were mapped cannot be read",
	},
}

func privileges(context.Context, Options) []Finding {
	who, outside := user()
	findings := []Finding{who}
	for _, c := range capabilities {
		findings = append(findings, c.check(outside))
	}
	if f, ok := lockdown(); ok {
		findings = append(findings, f)
	}
	return append(findings, pidNamespace())
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
func (c *capability) check(outside bool) Finding {
	f := Finding{Area: Privileges, ID: c.id, Name: c.name, State: OK, Required: c.required, Detail: c.use}
	held := false
	for _, number := range c.any {
		has, err := proc.HasCapability(number)
		if err != nil {
			f.State, f.Detail, f.Reason = Unknown, "could not be asked for", err.Error()
			return f
		}
		held = held || has
	}
	if held && !outside {
		return f
	}
	f.Detail, f.Reason, f.Remedy = "not held", c.without, "run it with sudo"
	switch {
	case held:
		f.Detail, f.Remedy = "held in a user namespace, where it does not count", "run it as root of the host"
	case os.Geteuid() == 0:
		f.Remedy = "in a container: docker run --cap-add " + strings.TrimPrefix(c.name, "CAP_")
	}
	f.State = Degraded
	if c.required {
		f.State = Missing
	}
	return f
}

// lockdown tells of the kernel's lockdown mode, where there is the security
// module. Mode confidentiality forbids BPF programs to read the kernel's memory
// (LOCKDOWN_BPF_READ_KERNEL of include/linux/security.h).
func lockdown() (Finding, bool) {
	text, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return Finding{}, false
	}
	_, mode, _ := strings.Cut(string(text), "[")
	mode, _, _ = strings.Cut(mode, "]")
	f := Finding{Area: Privileges, ID: "lockdown", Name: "kernel lockdown", State: OK, Required: true, Detail: mode}
	if mode == "confidentiality" {
		f.State = Missing
		f.Reason = "the kernel is locked down: BPF programs may not read its memory, which unwinding needs"
		f.Remedy = "boot with lockdown=integrity, or with Secure Boot off"
	}
	return f, true
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
