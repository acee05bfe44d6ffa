// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestReadAt(t *testing.T) {
	exe := testutil.BuildC(t, []string{"pkg/proc/testdata/target.c"})
	target := testutil.Start(t, exe, "island")
	var island int64
	if _, err := fmt.Sscanf(target.WaitLine("island "), "island %x", &island); err != nil {
		t.Fatal(err)
	}
	target.WaitLine("ready")
	page := int64(os.Getpagesize())
	readable := island + 2*page
	p := openProcess(t, target.PID())
	for _, way := range []struct {
		name string
		mem  bool
	}{{"process_vm_readv", false}, {"proc mem", true}} {
		t.Run(way.name, func(t *testing.T) {
			p.vmRead.Store(way.mem)
			for _, test := range []struct {
				name      string
				addr      int64
				size      int64
				n         int64
				endsEarly bool
			}{
				{"nothing", 0, 0, 0, false},
				{"a word", island + 8, 8, 8, false},
				{"across a page", island + page - 3, 8, 8, false},
				{"all that is there", island, 2 * page, 2 * page, false},
				{"null", 0, 8, 0, true},
				{"null page's end", page - 4, 8, 0, true},
				{"negative", -8, 8, 0, true},
				{"last address", 1<<63 - 1, 8, 0, true},
				{"kernel half", -1 << 47, 8, 0, true},
			} {
				checkRead(t, p, test.name, island, test.addr, test.size, test.n, test.endsEarly)
			}
			if way.mem {
				return // /proc/PID/mem reads PROT_NONE pages too, as a debugger may
			}
			checkRead(t, p, "unreadable", island, readable, 8, 0, true)
			checkRead(t, p, "up to the unreadable page", island, readable-5, 64, 5, true)
			checkRead(t, p, "more than there is", island, island+1, 3*page, 2*page-1, true)
		})
	}
}

func checkRead(t *testing.T, p *Process, name string, island, addr, size, n int64, endsEarly bool) {
	t.Helper()
	buf := make([]byte, size)
	got, err := p.ReadAt(buf, addr)
	if int64(got) != n || endsEarly != errors.Is(err, ErrUnmapped) || !endsEarly && err != nil {
		t.Errorf("%s: ReadAt = %d, %v; want %d bytes, ends early %v", name, got, err, n, endsEarly)
		return
	}
	for i := range buf[:got] {
		if want := byte((addr - island + int64(i)) % 251); buf[i] != want {
			t.Fatalf("%s: byte %d is %d, want %d", name, i, buf[i], want)
		}
	}
}

func BenchmarkReadAt(b *testing.B) {
	p, err := Open(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.ReadAt(buf, int64(maps[0].Start)); err != nil {
			b.Fatal(err)
		}
	}
}
