// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"fmt"
)

// MiniDebug returns the ELF file in .gnu_debugdata, which distributions put in
// stripped files to name the functions that .dynsym does not. It is
// decompressed into memory on first use and kept. It fails with
// [ErrNoSection], [ErrCorrupt], or [ErrTooLarge] above 64 MiB.
func (f *File) MiniDebug() (*File, error) { return f.mini() }

func (f *File) openMiniDebug() (*File, error) {
	if f.isMini {
		return nil, fmt.Errorf(".gnu_debugdata within itself: %w", ErrNoSection)
	}
	packed, err := f.Section(".gnu_debugdata")
	if err != nil {
		return nil, err
	}
	b, err := unxz(packed, maxMiniDebug)
	if err != nil {
		return nil, fmt.Errorf("decompressing .gnu_debugdata: %w", err)
	}
	m, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("opening .gnu_debugdata: %w", err)
	}
	m.isMini = true
	return m, nil
}
