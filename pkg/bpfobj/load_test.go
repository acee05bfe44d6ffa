// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestLoad(t *testing.T) {
	testutil.RequireBPF(t)
	for _, mode := range []Mode{ModeSession, ModeMulti, ModePerf} {
		t.Run(mode.String(), func(t *testing.T) {
			o, err := Load(Options{Mode: mode, Native: true, Python: &PythonLayout{FrameOwner: 70, FrameIndirect: 0, EntryValue: 3, EntryIsShim: true, CodeMask: ^uint64(0), FrameSize: 72}, Pages: 10, Rows: 10, Infos: 10, PIDNSIno: 1})
			var ve *ebpf.VerifierError
			if errors.As(err, &ve) {
				t.Fatalf("%+v", ve)
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, p := range o.coll.Programs {
				info, err := p.Info()
				if err != nil {
					t.Fatal(err)
				}
				n, _ := info.VerifiedInstructions()
				t.Logf("%s: %d instructions verified", name, n)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
