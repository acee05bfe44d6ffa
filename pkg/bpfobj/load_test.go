// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/kfeature"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// needs is what the kernel must have for a mode.
var needs = map[Mode]kfeature.Feature{
	ModeSession: kfeature.UprobeSession, ModeMulti: kfeature.UprobeMulti, ModePerf: kfeature.UprobeCookie,
}

// Every program of every mode passes the verifier.
func TestLoad(t *testing.T) {
	testutil.RequireBPF(t)
	for _, mode := range []Mode{ModeSession, ModeMulti, ModePerf} {
		t.Run(mode.String(), func(t *testing.T) {
			if err := kfeature.Have(needs[mode]); errors.Is(err, kfeature.ErrNotSupported) {
				t.Skipf("this kernel has no %v links: %v", mode, err)
			}
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
