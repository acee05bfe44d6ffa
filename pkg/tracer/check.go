// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/unfreed/unfreed/pkg/proc"
)

// ErrClass means that the target is a 32-bit process.
var ErrClass = errors.New("32-bit processes cannot be traced")

// CheckTarget refuses, before anything is prepared, a target that cannot be
// traced for what it is.
func CheckTarget(p *proc.Process) error {
	class, err := p.Class()
	if err != nil {
		return fmt.Errorf("looking at the program of process %d: %w", p.PID(), err)
	}
	if class != elf.ELFCLASS64 {
		return fmt.Errorf("process %d (%s): %w", p.PID(), p.Exe(), ErrClass)
	}
	return nil
}
