// SPDX-License-Identifier: Apache-2.0

package unwind

import "errors"

// The reasons why a file has no table. Errors of this package wrap one of
// them, or an error of the operating system.
var (
	// ErrNotELF says that the file is not an ELF file.
	ErrNotELF = errors.New("not an ELF file")

	// ErrUnsupported says that the file is for a machine that the unwinder
	// does not know: only 64-bit little-endian x86-64 and AArch64 are.
	ErrUnsupported = errors.New("unsupported kind of ELF file")

	// ErrCorrupt says that the file contradicts itself.
	ErrCorrupt = errors.New("corrupt ELF file")

	// ErrTooLarge says that the file exceeds one of the limits of limits.go.
	ErrTooLarge = errors.New("file exceeds a limit")

	// ErrNoRows says that the file is sound and holds no unwind information
	// for any executable segment.
	ErrNoRows = errors.New("no unwind information")
)
