// SPDX-License-Identifier: Apache-2.0

package python

import (
	"testing"

	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
)

// openProcess opens a process until the test ends.
func openProcess(t *testing.T, pid int) *proc.Process {
	t.Helper()
	p, err := proc.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// find runs Find on a process, the files of which stay open until the test
// ends.
func find(t *testing.T, p *proc.Process) (*Runtime, error) {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	return Find(p, maps, func(m proc.Mapping) (*elfsym.File, error) {
		f, err := p.OpenMapping(m)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { f.Close() })
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		return elfsym.Open(f, info.Size())
	})
}
