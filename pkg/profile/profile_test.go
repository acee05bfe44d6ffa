// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"

	"github.com/unfreed/unfreed/pkg/alloc"
)

var (
	exeMap  = &alloc.Mapping{Start: 0x400000, End: 0x800000, File: "/usr/bin/python3.11", BuildID: "aa01"}
	extMap  = &alloc.Mapping{Start: 0x7f0000001000, End: 0x7f0000003000, Offset: 0x1000, File: "/app/_leak.so", BuildID: "bb02"}
	libcMap = &alloc.Mapping{Start: 0x7f1000000000, End: 0x7f1000100000, Offset: 0x28000, File: "/lib/libc.so.6"}
)

// mixed is a stack with everything: inlining, no symbols, folding, Python.
func mixed(line int) []alloc.Frame {
	return []alloc.Frame{
		{Function: "grow<int>", SystemName: "_Z4growIiEvv", File: "leak.cc", Line: 7, StartLine: 5, Inlined: true, Address: 0x7f0000001188, Mapping: extMap},
		{Function: "keep", SystemName: "_Z4keepv", File: "leak.cc", Line: 19, Address: 0x7f0000001188, Mapping: extMap},
		{Address: 0x7f0000001200, Mapping: extMap},
		{Function: "cfunction_call", Interpreter: true, Address: 0x450000, Mapping: exeMap},
		{Function: "_PyEval_EvalFrameDefault", Interpreter: true, Address: 0x460000, Mapping: exeMap},
		{Function: "Cache.<lambda>", File: "/app/serve.py", Line: line, StartLine: 40, Language: alloc.Python},
		{Function: "<module>", File: "/app/serve.py", Line: 90, StartLine: 1, Language: alloc.Python},
		{Function: "Py_RunMain", Interpreter: true, Address: 0x470000, Mapping: exeMap},
		{Function: "__libc_start_main", Address: 0x7f1000000100, Mapping: libcMap},
	}
}

func snapshot() *alloc.Snapshot {
	return &alloc.Snapshot{
		Target:      alloc.Target{PID: 4242, Command: []string{"python3", "serve.py"}, Exe: "/usr/bin/python3.11", Python: "3.11.2"},
		Start:       time.Unix(1700000000, 5),
		Duration:    5 * time.Minute,
		Ended:       "interrupted",
		SampleBytes: 1,
		Version:     "0.1.0",
		Sites: []alloc.Site{
			{ID: 1, Function: "malloc", Stack: mixed(42), InUseBytes: 1 << 20, InUseObjects: 4, AllocBytes: 3 << 20, AllocObjects: 12},
			{ID: 2, Function: "mmap", Kind: alloc.KindMmap, Stack: mixed(43), InUseBytes: 1 << 18, InUseObjects: 1, AllocBytes: 1 << 18, AllocObjects: 1},
			{ID: 3, Function: "calloc", Stack: nil, InUseBytes: 123, InUseObjects: 1, AllocBytes: 123, AllocObjects: 1},
			{ID: 4, Function: "cudaMalloc", Kind: alloc.KindDevice, InUseBytes: 1 << 30, InUseObjects: 1},
		},
		Coverage: alloc.Coverage{Allocations: 14, StacksComplete: 14, Frames: 20},
	}
}

func build(t *testing.T, s *alloc.Snapshot, v alloc.View) *pprof.Profile {
	t.Helper()
	p, err := Build(s, Heap, v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stacks renders a profile's samples, leaf first, with inlining as "a>b".
func stacks(p *pprof.Profile) map[string][]int64 {
	all := map[string][]int64{}
	for _, s := range p.Sample {
		var locs []string
		for _, l := range s.Location {
			var names []string
			for _, x := range l.Line {
				names = append(names, x.Function.Name)
			}
			locs = append(locs, strings.Join(names, ">"))
		}
		all[strings.Join(s.Label["memory"], ",")+": "+strings.Join(locs, " ")] = s.Value
	}
	return all
}

func TestBuild(t *testing.T) {
	p := build(t, snapshot(), alloc.View{})

	want := map[string][]int64{
		"heap: malloc grow<int>>keep _leak.so+0x1200 Cache.<lambda> <module> __libc_start_main": {12, 3 << 20, 4, 1 << 20},
		"mmap: mmap grow<int>>keep _leak.so+0x1200 Cache.<lambda> <module> __libc_start_main":   {1, 1 << 18, 1, 1 << 18},
		"heap: calloc": {1, 123, 1, 123},
	}
	if diff := cmp.Diff(want, stacks(p)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}

	if p.DefaultSampleType != "inuse_space" || p.Period != 1 || p.PeriodType.Type != "space" || p.PeriodType.Unit != "bytes" {
		t.Errorf("default %q, period %d of %v", p.DefaultSampleType, p.Period, p.PeriodType)
	}
	if p.TimeNanos != 1700000000_000000005 || p.DurationNanos != 300e9 {
		t.Errorf("time %d, duration %d", p.TimeNanos, p.DurationNanos)
	}
	var types []string
	for _, x := range p.SampleType {
		types = append(types, x.Type+"/"+x.Unit)
	}
	if diff := cmp.Diff([]string{"alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"}, types); diff != "" {
		t.Errorf("sample types (-want +got):\n%s", diff)
	}
}

func TestBuildTables(t *testing.T) {
	p := build(t, snapshot(), alloc.View{})

	type mapping struct {
		File, BuildID           string
		Start, Limit, Offset    uint64
		Funcs, Files, Lines, In bool
	}
	var mappings []mapping
	for _, m := range p.Mapping {
		mappings = append(mappings, mapping{m.File, m.BuildID, m.Start, m.Limit, m.Offset,
			m.HasFunctions, m.HasFilenames, m.HasLineNumbers, m.HasInlineFrames})
	}
	wantMappings := []mapping{
		// Not on any stack once the interpreter is folded, yet the main binary.
		{"/usr/bin/python3.11", "", 0, 0, 0, true, false, false, false},
		{"/app/_leak.so", "bb02", 0x7f0000001000, 0x7f0000003000, 0x1000, true, true, true, true},
		{"/lib/libc.so.6", "", 0x7f1000000000, 0x7f1000100000, 0x28000, true, false, false, false},
	}
	if diff := cmp.Diff(wantMappings, mappings); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}

	find := func(name string) *pprof.Location {
		for _, l := range p.Location {
			if slices.ContainsFunc(l.Line, func(x pprof.Line) bool { return x.Function.Name == name }) {
				return l
			}
		}
		t.Fatalf("no location of %s", name)
		return nil
	}
	if l := find("malloc"); l.Address != 0 || l.Mapping != nil {
		t.Errorf("the allocation function has address %#x, mapping %v", l.Address, l.Mapping)
	}
	l := find("grow<int>")
	if l.Address != 0x7f0000001188 || l.Mapping.File != "/app/_leak.so" || l.Line[0].Line != 7 || l.Line[1].Line != 19 {
		t.Errorf("native location %+v, lines %+v", l, l.Line)
	}
	if f := l.Line[0].Function; f.SystemName != "_Z4growIiEvv" || f.Filename != "leak.cc" || f.StartLine != 5 {
		t.Errorf("native function %+v", f)
	}
	l = find("<module>")
	if f := l.Line[0].Function; l.Address != 0 || l.Mapping != nil || l.Line[0].Line != 90 ||
		f.SystemName != "" || f.Filename != "/app/serve.py" || f.StartLine != 1 {
		t.Errorf("Python location %+v, function %+v", l, f)
	}

	p = build(t, snapshot(), alloc.View{KeepInterpreter: true})
	if m := p.Mapping[0]; m.File != "/usr/bin/python3.11" || m.BuildID != "aa01" || m.Start != 0x400000 || len(p.Mapping) != 3 {
		t.Errorf("first mapping %+v of %d, want the executable's own", m, len(p.Mapping))
	}
}

func TestComments(t *testing.T) {
	s := snapshot()
	s.Target.Command = []string{"python3", "evil\x1b[31m\nname"}
	s.SampleBytes = 512 << 10
	s.MinAge = time.Minute
	s.Coverage.EventsLost = []alloc.Cause{{Name: "live_full", Detail: "the live map was full", Count: 12}}
	s.Coverage.StacksPartial = []alloc.Cause{{Name: "unknown_mapping", Count: 3}}
	p := build(t, s, alloc.View{})
	if p.Period != 512<<10 {
		t.Errorf("period %d", p.Period)
	}
	text := strings.Join(p.Comments, "\n")
	for _, want := range []string{
		"Process: python3 evil\ufffd[31m\ufffdname (PID 4242)\n",
		"\nINCOMPLETE: numbers may be wrong: 12 live_full (the live map was full)\n",
		"\n# unfreed 0.1.0\n", "\n# python: 3.11.2\n", "\n# traced: 5m0s from 2023-11-14T22:13:20Z, ended: interrupted\n",
		"\n# sampled: one allocation every 524288 bytes", "at least 1m0s old",
		"\n# outstanding mmap: 262144 bytes in 1 allocations\n",
		"\n# coverage: 14 stacks complete, 3 partial\n", "\n# coverage: partial stacks: 3 unknown_mapping\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("comments lack %q:\n%s", want, text)
		}
	}
	if text := strings.Join(build(t, snapshot(), alloc.View{}).Comments, "\n"); strings.Contains(text, "INCOMPLETE") ||
		!strings.Contains(text, "\n# coverage: nothing lost") || !strings.Contains(text, "\n# exact: ") {
		t.Errorf("comments of a complete observation:\n%s", text)
	}
}

// TestInvalidText checks that bytes that are not UTF-8 do not reach the file.
func TestInvalidText(t *testing.T) {
	s := snapshot()
	s.Sites[0].Stack = []alloc.Frame{
		{Function: "f\xff", SystemName: "\xfe", File: "\xfd.c", Address: 1, Mapping: &alloc.Mapping{File: "/\xfc.so", End: 2}},
	}
	s.Target.Exe = "/\xfb"
	p := build(t, s, alloc.View{})
	for _, x := range []string{p.Function[1].Name, p.Function[1].SystemName, p.Function[1].Filename, p.Mapping[0].File, p.Mapping[1].File} {
		if !strings.Contains(x, "\ufffd") || strings.ToValidUTF8(x, "") != x {
			t.Errorf("%q", x)
		}
	}
}

// randomSnapshot makes sites whose stacks share frames in many ways.
func randomSnapshot(r *rand.Rand) *alloc.Snapshot {
	s := snapshot()
	s.Sites = nil
	pool := mixed(1)
	for i := range 300 {
		x := alloc.Site{ID: alloc.StackID(i), Function: "malloc", Kind: alloc.Kind(r.IntN(2))}
		for range r.IntN(6) {
			x.Stack = append(x.Stack, pool[r.IntN(len(pool))])
		}
		x.InUseBytes, x.InUseObjects = r.Int64N(1000), r.Int64N(3)
		x.AllocBytes, x.AllocObjects = x.InUseBytes+r.Int64N(100), x.InUseObjects+r.Int64N(9)
		s.Sites = append(s.Sites, x)
	}
	return s
}

func views() []alloc.View {
	var all []alloc.View
	for i := range 8 {
		all = append(all, alloc.View{KeepInterpreter: i&1 != 0, DropNative: i&2 != 0, DropPython: i&4 != 0})
	}
	return all
}

// TestNothingLost checks that no view changes a total, and that the profile
// survives a round trip.
func TestNothingLost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for range 20 {
		s := randomSnapshot(r)
		want := make([]int64, 4)
		for _, x := range s.Sites {
			for i, n := range []int64{x.AllocObjects, x.AllocBytes, x.InUseObjects, x.InUseBytes} {
				want[i] += n
			}
		}
		for _, v := range views() {
			var buf bytes.Buffer
			if err := Write(&buf, s, Heap, v); err != nil {
				t.Fatal(err)
			}
			p, err := pprof.Parse(&buf)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]int64, 4)
			for _, x := range p.Sample {
				for i, n := range x.Value {
					got[i] += n
				}
				if name := x.Location[0].Line[0].Function.Name; name != "malloc" {
					t.Fatalf("%+v: leaf %q", v, name)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%+v: totals (-want +got):\n%s", v, diff)
			}
			if diff := cmp.Diff(build(t, s, v).String(), p.String()); diff != "" {
				t.Fatalf("%+v: round trip (-built +read):\n%s", v, diff)
			}
		}
	}
}

func TestDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	s := randomSnapshot(r)
	var first []byte
	for range 5 {
		var buf bytes.Buffer
		if err := Write(&buf, s, Heap, alloc.View{}); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = buf.Bytes()
		} else if !bytes.Equal(first, buf.Bytes()) {
			t.Fatal("the same sites in another order give another file")
		}
		r.Shuffle(len(s.Sites), func(i, j int) { s.Sites[i], s.Sites[j] = s.Sites[j], s.Sites[i] })
		for i := range s.Sites { // equal mappings need not be the same pointer
			for j := range s.Sites[i].Stack {
				if m := s.Sites[i].Stack[j].Mapping; m != nil {
					c := *m
					s.Sites[i].Stack = slices.Clone(s.Sites[i].Stack)
					s.Sites[i].Stack[j].Mapping = &c
				}
			}
		}
	}
}

// TestGoToolPprof reads a written profile with the tool that people have.
func TestGoToolPprof(t *testing.T) {
	file := filepath.Join(t.TempDir(), "heap.pb.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(f, snapshot(), Heap, alloc.View{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	pprof := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", append(append([]string{"tool", "pprof", "-unit=b"}, args...), file)...)
		cmd.Env = append(os.Environ(), "PPROF_BINARY_PATH="+t.TempDir(), "TZ=UTC")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
		}
		if stderr.Len() > 0 {
			t.Errorf("%v complains: %s", cmd.Args, stderr.String())
		}
		return string(out)
	}

	text := pprof("-top", "-nodefraction=0")
	type row struct{ flat, cum int }
	rows := map[string]row{}
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+)B? +\S+ +\S+ +(\d+)B? +\S+ +(.+)$`).FindAllStringSubmatch(text, -1) {
		flat, _ := strconv.Atoi(m[1])
		cum, _ := strconv.Atoi(m[2])
		rows[m[3]] = row{flat, cum}
	}
	const mixedBytes = 1<<20 + 1<<18
	want := map[string]row{
		"malloc": {1 << 20, 1 << 20}, "mmap": {1 << 18, 1 << 18}, "calloc": {123, 123},
		"grow<int> (inline)": {0, mixedBytes}, "keep": {0, mixedBytes}, "_leak.so+0x1200": {0, mixedBytes},
		"Cache.<lambda>": {0, mixedBytes}, "<module>": {0, mixedBytes}, "__libc_start_main": {0, mixedBytes},
	}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("-top (-want +got):\n%s\n%s", diff, text)
	}
	for _, header := range []string{"File: python3.11\n", "Type: inuse_space\n", "Process: python3 serve.py (PID 4242)\n"} {
		if !strings.Contains(text, header) {
			t.Errorf("-top lacks %q:\n%s", header, text)
		}
	}
	if text := pprof("-top", "-tagfocus=memory=mmap"); strings.Contains(text, "malloc") || !strings.Contains(text, "262144") {
		t.Errorf("-tagfocus=memory=mmap:\n%s", text)
	}
	if text := pprof("-comments"); !strings.Contains(text, "# coverage: nothing lost") {
		t.Errorf("-comments:\n%s", text)
	}
}

func BenchmarkBuild(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 9))
	s := randomSnapshot(r)
	s.Sites = nil
	for i := range 5000 {
		x := alloc.Site{ID: alloc.StackID(i), Function: "malloc", InUseBytes: r.Int64N(1000), InUseObjects: 1}
		for j := range 60 {
			x.Stack = append(x.Stack, alloc.Frame{Function: "f" + strconv.Itoa(r.IntN(50)+j), Address: 0x7f0000001000 + uint64(r.IntN(50)+j), Mapping: extMap})
		}
		s.Sites = append(s.Sites, x)
	}
	for b.Loop() {
		if _, err := Build(s, Heap, alloc.View{}); err != nil {
			b.Fatal(err)
		}
	}
}
