// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// Exit codes, documented in docs/exit-codes.md.
const (
	exitOK          = 0
	exitFailed      = 1   // anything not named below
	exitUsage       = 2   // wrong flags or arguments
	exitTarget      = 3   // the process cannot be traced
	exitPermission  = 4   // a capability is missing
	exitUnsupported = 5   // the kernel or this machine lacks something
	exitOutput      = 6   // the profile or the report cannot be written
	exitAborted     = 130 // a second Ctrl-C
)

// exitError carries an exit code. A nil err means that everything has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageError(err error) error { return &exitError{exitUsage, err} }

// exitCode maps an error to the exit code that scripts can branch on.
func exitCode(err error) int {
	var coded *exitError
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "accepts "):
		return exitUsage
	case errors.As(err, &verifier): // which is EACCES too, for lack of nothing that can be granted
		return exitUnsupported
	case errors.Is(err, proc.ErrPermission), errors.Is(err, fs.ErrPermission):
		return exitPermission
	case errors.Is(err, proc.ErrNoProcess), errors.Is(err, proc.ErrKernelThread), errors.Is(err, proc.ErrZombie),
		errors.Is(err, proc.ErrThread), errors.Is(err, proc.ErrExited), errors.Is(err, proc.ErrReused),
		errors.Is(err, proc.ErrOtherNamespace),
		errors.Is(err, tracer.ErrNoFunctions), errors.Is(err, tracer.ErrClass), errors.Is(err, tracer.ErrReplaced):
		return exitTarget
	case errors.Is(err, ebpf.ErrNotSupported):
		return exitUnsupported
	}
	return exitFailed
}
