// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/tracer"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), exitFailed},
		{usageError(errors.New("wrong")), exitUsage},
		{proc.ErrNoProcess, exitTarget},
		{proc.ErrKernelThread, exitTarget},
		{proc.ErrZombie, exitTarget},
		{proc.ErrThread, exitTarget},
		{proc.ErrExited, exitTarget},
		{proc.ErrReused, exitTarget},
		{proc.ErrOtherNamespace, exitTarget},
		{tracer.ErrNoFunctions, exitTarget},
		{tracer.ErrClass, exitTarget},
		{tracer.ErrReplaced, exitTarget},
		{proc.ErrPermission, exitPermission},
		{fs.ErrPermission, exitPermission},
		{syscall.EACCES, exitPermission},
		{&ebpf.VerifierError{Cause: syscall.EACCES}, exitUnsupported},
		{ebpf.ErrNotSupported, exitUnsupported},
	} {
		if got := exitCode(fmt.Errorf("doing: %w", tt.err)); got != tt.want {
			t.Errorf("%v: exit code %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestPrinted(t *testing.T) {
	for err, says := range map[error]string{
		nil:            "<nil>",
		syscall.EPIPE:  "<nil>",
		syscall.ENOSPC: "writing the report: no space left on device",
	} {
		if got := fmt.Sprint(printed(err)); got != says {
			t.Errorf("%v: %s, want %s", err, got, says)
		}
	}
}
