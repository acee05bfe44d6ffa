// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// MemoryLimits are limits of this host at which a request for memory fails
// rather than waits or kills (mm/util.c, mm/mmap.c).
type MemoryLimits struct {
	// Refused is the size in bytes from which on a single request may be
	// refused; 0 if any may, since the host does not overcommit.
	Refused uint64
	// Mappings is how many mappings a process may have.
	Mappings uint64
}

// noRefusal stands for no limit to a request: address space ends before.
const noRefusal = 1 << 47

// ReadMemoryLimits reads the host's settings from /proc.
func ReadMemoryLimits() (MemoryLimits, error) {
	mode, err := readNumber("/proc/sys/vm/overcommit_memory")
	if err != nil {
		return MemoryLimits{}, err
	}
	mappings, err := readNumber("/proc/sys/vm/max_map_count")
	if err != nil {
		return MemoryLimits{}, err
	}
	l := MemoryLimits{Mappings: mappings}
	switch mode {
	case 0: // heuristic: refused what exceeds all memory and swap
		fs, err := procfs.NewDefaultFS()
		if err != nil {
			return MemoryLimits{}, fmt.Errorf("opening /proc: %w", err)
		}
		m, err := fs.Meminfo()
		if err != nil {
			return MemoryLimits{}, fmt.Errorf("reading /proc/meminfo: %w", err)
		}
		if m.MemTotalBytes != nil {
			l.Refused = *m.MemTotalBytes
		}
		if m.SwapTotalBytes != nil {
			l.Refused += *m.SwapTotalBytes
		}
	case 1: // always
		l.Refused = noRefusal
	}
	return l, nil
}

func readNumber(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return n, nil
}
