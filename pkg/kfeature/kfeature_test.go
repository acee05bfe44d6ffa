// SPDX-License-Identifier: Apache-2.0

package kfeature

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestFeaturesAreDescribed(t *testing.T) {
	names := map[string]bool{}
	for i, f := range All() {
		if int(f) != i || !f.valid() {
			t.Errorf("feature %d is %d", i, f)
		}
		if f.String() == "" || names[f.String()] {
			t.Errorf("feature %d has no name of its own: %q", i, f)
		}
		names[f.String()] = true
		if !strings.HasSuffix(f.Doc(), ".") {
			t.Errorf("%s: doc %q is no sentence", f, f.Doc())
		}
		if features[f].probe == nil {
			t.Errorf("%s has no probe", f)
		}
	}
	for _, f := range []Feature{-1, featureCount} {
		if err := Have(f); err == nil || errors.Is(err, ErrNotSupported) || f.Doc() != "" {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// Every probe comes to a conclusion for root, opens nothing for good, and gives
// the same answer again.
func TestHave(t *testing.T) {
	testutil.RequireBPF(t)
	testutil.NoLeakedFDs(t)
	for _, f := range All() {
		err := Have(f)
		var unsupported *UnsupportedError
		switch {
		case err == nil:
			t.Logf("%s: yes", f)
		case errors.As(err, &unsupported):
			if !errors.Is(err, ErrNotSupported) || !errors.Is(err, ebpf.ErrNotSupported) || unsupported.Feature != f {
				t.Errorf("%s: %#v", f, err)
			}
			t.Logf("%v", err)
		default:
			t.Errorf("no conclusion: %v", err)
		}
		if again := Have(f); !errors.Is(again, err) {
			t.Errorf("%s: %v, then %v", f, err, again)
		}
	}
	// A session is a multi link with more, and its functions come with it.
	if Have(UprobeSession) == nil && (Have(UprobeMulti) != nil || Have(SessionKfuncs) != nil) {
		t.Error("sessions without multi links or functions")
	}
}

// Probing leaves no probe, link or program behind.
func TestProbesCleanUp(t *testing.T) {
	testutil.RequireBPF(t)
	for _, f := range All() {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _ = features[f].probe() })
		}
		wg.Wait()
	}
	testutil.NoLeakedFDs(t)
	for _, f := range All() {
		_ = features[f].probe()
	}
	var id ebpf.ProgramID
	for {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone
		}
		info, err := prog.Info()
		prog.Close()
		if err == nil && strings.HasPrefix(info.Name, "kfeature") && !unloaded(id) {
			t.Errorf("program %s is still loaded", info.Name)
		}
	}
}

// unloaded reports whether a program goes away. The kernel frees what was
// attached to a tracepoint a little after its link was closed.
func unloaded(id ebpf.ProgramID) bool {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return true
		}
		prog.Close()
	}
	return false
}

// What no kernel has is told from what could not be asked for.
func TestUnknownIsNotSupported(t *testing.T) {
	testutil.RequireBPF(t)
	if err := probeMultiLink(ebpf.AttachType(4000)); !errors.Is(err, ErrNotSupported) {
		t.Errorf("unknown link: %v", err)
	}
	if err := probeTracepoint("no_such_tracepoint")(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("unknown tracepoint: %v", err)
	}
	if err := probeMap(ebpf.MapType(4000))(); err == nil {
		t.Error("unknown map type exists")
	}
	if _, err := uprobeProgram(0, 1<<30); !errors.Is(err, ErrNotSupported) {
		t.Errorf("unknown flag: %v", err)
	}
	// A program that the verifier refuses is a fault of the probe's.
	if _, err := uprobeProgram(0, 0, asm.Mov.Reg(asm.R0, asm.R9)); err == nil || errors.Is(err, ErrNotSupported) {
		t.Errorf("bad program: %v", err)
	}
}

// Without privileges the answer is not "no". The child is this test as nobody.
func TestHaveWithoutPrivileges(t *testing.T) {
	const env = "KFEATURE_TEST_CHILD"
	if os.Getenv(env) != "" {
		for _, f := range All() {
			err := Have(f)
			fmt.Printf("result %d %v %v %v\n", f, err == nil, errors.Is(err, ErrNotSupported), errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES))
		}
		p, err := ReadPrivileges()
		fmt.Printf("missing %v %v\n", p.Effective.Missing(Capabilities()...), err)
		return
	}
	testutil.RequireRoot(t)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestHaveWithoutPrivileges$")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	inconclusive := 0
	for line := range strings.Lines(string(out)) {
		var f Feature
		var yes, no, perm bool
		if n, _ := fmt.Sscanf(line, "result %d %t %t %t", &f, &yes, &no, &perm); n != 4 {
			continue
		}
		if no && Have(f) == nil {
			t.Errorf("%s: nobody is told that the kernel lacks it", f)
		}
		if !yes && !no {
			inconclusive++
			if !perm {
				t.Errorf("%s: no conclusion, and not for lack of privileges", f)
			}
		}
	}
	if inconclusive == 0 {
		t.Errorf("nobody may do everything:\n%s", out)
	}
	if want := "missing [CAP_BPF CAP_PERFMON CAP_SYS_PTRACE CAP_SYS_ADMIN CAP_SYS_RESOURCE] <nil>"; !bytes.Contains(out, []byte(want)) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

func TestReadPrivileges(t *testing.T) {
	p, err := ReadPrivileges()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Setting{p.UnprivilegedBPF, p.PerfEventParanoid, p.PtraceScope} {
		if s.Err != nil && !errors.Is(s.Err, fs.ErrNotExist) {
			t.Error(s.Err)
		}
		if s.Value < -1 || s.Value > 4 {
			t.Errorf("%s is %d", s.Name, s.Value)
		}
	}
	if s := readSetting("kernel.no_such_setting"); !errors.Is(s.Err, fs.ErrNotExist) {
		t.Errorf("got %+v", s)
	}
	if s := readSetting("kernel.ostype"); s.Err == nil {
		t.Errorf("a name was read as the number %d", s.Value)
	}
}

func TestCapabilitySet(t *testing.T) {
	for _, c := range []struct {
		set     CapabilitySet
		missing []Capability
	}{
		{1<<41 - 1, nil},
		{0, Capabilities()},
		{1 << CapSysAdmin, []Capability{CapSysPtrace, CapSysResource}},
		{1<<CapBPF | 1<<CapPerfmon | 1<<CapSysPtrace, []Capability{CapSysAdmin, CapSysResource}},
	} {
		if diff := cmp.Diff(c.missing, c.set.Missing(Capabilities()...)); diff != "" {
			t.Errorf("%#x (-want +got):\n%s", uint64(c.set), diff)
		}
	}
	if CapabilitySet(1).Has(64) {
		t.Error("capability 64 is in a set of 64")
	}
}

func TestParseStatus(t *testing.T) {
	for _, c := range []struct {
		text string
		want CapabilitySet
		ok   bool
	}{
		{"Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n", 1<<41 - 1, true},
		{"CapEff:\t0000000000000000", 0, true},
		{"CapEff:\t", 0, false},
		{"CapEff:\tffffffffffffffffff\n", 0, false},
		{"Name:\tCapEff:\n", 0, false},
		{"", 0, false},
	} {
		if got, err := parseStatus(strings.NewReader(c.text)); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %#x, %v", c.text, uint64(got), err)
		}
	}
}

func TestParseLockdown(t *testing.T) {
	for text, want := range map[string]string{
		"[none] integrity confidentiality\n": "none",
		"none integrity [confidentiality]\n": "confidentiality",
		"none":                               "", "[": "", "]": "", "": "",
	} {
		if got := parseLockdown(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add("CapEff:\t000001ffffffffff\n")
	f.Add("CapEff:")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseStatus(strings.NewReader(text)); err == nil && !strings.Contains(text, "CapEff:") {
			t.Error("capabilities out of nothing")
		}
	})
}

func BenchmarkProbes(b *testing.B) {
	testutil.RequireBPF(b)
	for _, f := range All() {
		b.Run(strings.ReplaceAll(f.String(), " ", "_"), func(b *testing.B) {
			for b.Loop() {
				if err := features[f].probe(); err != nil && !errors.Is(err, ErrNotSupported) {
					b.Fatal(err)
				}
			}
		})
	}
}
