// SPDX-License-Identifier: Apache-2.0

package uprobelink_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/internal/uprobelink"
	"github.com/unfreed/unfreed/pkg/kfeature"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// Uprobes are a matter of files: in one that nobody maps they trap nowhere.
func TestCreate(t *testing.T) {
	testutil.RequireBPF(t)
	testutil.NoLeakedFDs(t)
	fd, err := unix.MemfdCreate("uprobelink", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "memfd:uprobelink")
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	for at, needs := range map[ebpf.AttachType]kfeature.Feature{
		ebpf.AttachTraceUprobeMulti: kfeature.UprobeMulti, uprobelink.AttachSession: kfeature.UprobeSession,
	} {
		t.Run(needs.String(), func(t *testing.T) {
			if err := kfeature.Have(needs); errors.Is(err, kfeature.ErrNotSupported) {
				t.Skipf("this kernel lacks %v: %v", needs, err)
			} else if err != nil {
				t.Fatal(err)
			}
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
				Name: "uprobelink", Type: ebpf.Kprobe, AttachType: at, License: "Dual BSD/GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer prog.Close()
			path := fmt.Sprintf("/proc/self/fd/%d", fd)
			for _, tt := range []struct {
				r    uprobelink.Request
				want error
			}{
				{uprobelink.Request{path, []uint64{64, 128}, []uint64{1, 2}, uint32(os.Getpid())}, nil},
				{uprobelink.Request{path, []uint64{64}, nil, 0}, nil},
				{uprobelink.Request{path, []uint64{64, 128}, []uint64{1}, 0}, unix.EINVAL},
				{uprobelink.Request{path, nil, nil, 0}, unix.EINVAL},
				{uprobelink.Request{"/", []uint64{64}, nil, 0}, unix.EBADF},
				{uprobelink.Request{"/nonexistent", []uint64{64}, nil, 0}, unix.ENOENT},
				{uprobelink.Request{"\x00", []uint64{64}, nil, 0}, unix.EINVAL},
			} {
				link, err := tt.r.Create(prog, at)
				if !errors.Is(err, tt.want) {
					t.Errorf("%+v: error = %v, want %v", tt.r, err, tt.want)
				}
				if err == nil {
					unix.Close(link)
				}
			}
		})
	}
}
