// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// The helper is this test binary run as another user or in other namespaces:
// it opens a process there and prints as JSON what it saw.
const helperEnv = "UNFREED_PROC_HELPER"

// nobody is a user without capabilities.
const nobody = 65534

type sighting struct {
	PID, Local int
	Mappings   int
	Exe        string   // first bytes of the executable, through its mapping
	Memory     string   // the same bytes, from memory
	Open       string   // errors
	Mapping    string   //
	Read       string   //
	IsReplaced bool     // of Mapping
	Permission bool     // of Open
	OtherNS    bool     // of Open
	NoProcess  bool     // of Open
	Missing    []string // of Open
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := help(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func help(mode string) error {
	var pid int
	if _, err := fmt.Sscanf(mode, "%d", &pid); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(look(pid))
}

// look opens a process and its executable.
func look(pid int) (s sighting) {
	p, err := Open(pid)
	if err != nil {
		s.Open = err.Error()
		s.OtherNS = errors.Is(err, ErrOtherNamespace)
		s.NoProcess = errors.Is(err, ErrNoProcess)
		var denied *PermissionError
		if s.Permission = errors.As(err, &denied) && errors.Is(err, ErrPermission); s.Permission {
			s.Missing = denied.Missing
		}
		return s
	}
	defer p.Close()
	s.PID, s.Local = p.PID(), p.LocalPID()
	maps, err := p.Maps()
	if err != nil {
		s.Mapping = err.Error()
		return s
	}
	s.Mappings = len(maps)
	var head [4]byte
	if _, err := p.ReadAt(head[:], int64(maps[0].Start)); err != nil {
		s.Read = err.Error()
	}
	s.Memory = string(head[:])
	f, err := p.OpenMapping(maps[0])
	if err != nil {
		s.Mapping, s.IsReplaced = err.Error(), errors.Is(err, ErrReplaced)
		return s
	}
	defer f.Close()
	if _, err := f.ReadAt(head[:], 0); err != nil {
		s.Mapping = err.Error()
	}
	s.Exe = string(head[:])
	return s
}

// helper prepares the helper's run. It is started through a descriptor, because
// the folder of a test binary is closed to other users.
func helper(t *testing.T, pid int, wrap ...string) *exec.Cmd {
	t.Helper()
	testutil.RequireRoot(t)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { self.Close() })
	args := append(wrap, "/proc/self/fd/3")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", helperEnv, pid))
	cmd.ExtraFiles = []*os.File{self}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	return cmd
}

func sight(t *testing.T, cmd *exec.Cmd) (s sighting) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running %v: %v", cmd, err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v printed %q: %v", cmd, out, err)
	}
	return s
}

func asNobody(cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	return cmd
}
