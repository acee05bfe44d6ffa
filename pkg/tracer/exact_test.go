// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// siteTotals are what a C target says of one of its sites, or what was traced.
type siteTotals struct {
	Site       string `json:"site"`
	Function   string `json:"function"`
	Objects    int64  `json:"objects"`
	Bytes      int64  `json:"bytes"`
	Allocs     int64  `json:"allocs"`
	AllocBytes int64  `json:"alloc_bytes"`
}

// said parses the line SITES of a target. Pairs without a call are left out.
func said(t *testing.T, line string) []siteTotals {
	t.Helper()
	var all []siteTotals
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "SITES ")), &all); err != nil {
		t.Fatalf("reading %q: %v", line, err)
	}
	all = slices.DeleteFunc(all, func(s siteTotals) bool { return s.Allocs == 0 && s.Objects == 0 })
	sortTotals(all)
	return all
}

// aliases are names of one address in glibc 2.36 and later, of which the table
// has the first.
var aliases = map[string]string{"memalign": "aligned_alloc", "mmap64": "mmap"}

func name(function string) string { return cmp.Or(aliases[function], function) }

// traced sums a snapshot by the innermost frame that is one of the target's
// sites.
func traced(snap *alloc.Snapshot, want []siteTotals) []siteTotals {
	known := map[string]bool{}
	for _, w := range want {
		known[w.Site] = true
	}
	sums := map[[2]string]*siteTotals{}
	for _, s := range snap.Sites {
		site := "(none)"
		for _, f := range s.Stack {
			if known[f.Function] {
				site = f.Function
				break
			}
		}
		key := [2]string{site, name(s.Function)}
		sum := sums[key]
		if sum == nil {
			sum = &siteTotals{Site: site, Function: key[1]}
			sums[key] = sum
		}
		sum.Objects += s.InUseObjects
		sum.Bytes += s.InUseBytes
		sum.Allocs += s.AllocObjects
		sum.AllocBytes += s.AllocBytes
	}
	var out []siteTotals
	for _, s := range sums {
		out = append(out, *s)
	}
	sortTotals(out)
	return out
}

func sortTotals(s []siteTotals) {
	for i := range s {
		s[i].Function = name(s[i].Function)
	}
	slices.SortFunc(s, func(a, b siteTotals) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Function, b.Function))
	})
}

// merged adds up totals of the same site and function, which aliases make.
func merged(in []siteTotals) []siteTotals {
	var out []siteTotals
	for _, s := range in {
		if n := len(out); n > 0 && out[n-1].Site == s.Site && out[n-1].Function == s.Function {
			out[n-1].Objects += s.Objects
			out[n-1].Bytes += s.Bytes
			out[n-1].Allocs += s.Allocs
			out[n-1].AllocBytes += s.AllocBytes
			continue
		}
		out = append(out, s)
	}
	return out
}

func requireComplete(t *testing.T, snap *alloc.Snapshot) {
	t.Helper()
	c := snap.Coverage
	if c.Incomplete() {
		t.Errorf("events lost: %+v", c.EventsLost)
	}
	if c.Partial() > 0 {
		t.Errorf("partial stacks: %+v", c.StacksPartial)
		for _, s := range snap.Sites {
			if n := len(s.Stack); n == 0 || s.Stack[n-1].Mapping == nil {
				t.Errorf("%s in %s", s.Function, describe(s.Stack))
			}
		}
	}
}

// describe names the frames of a stack in one line.
func describe(stack []alloc.Frame) string {
	var names []string
	for i := range stack {
		names = append(names, stack[i].Label())
	}
	return strings.Join(names, " < ")
}

// modes are the kinds of link that this kernel has. Older kernels than the one
// that CI runs on lack the first or both of the first.
func modes(t *testing.T) []bpfobj.Mode {
	t.Helper()
	best, err := attach.Supported()
	if err != nil {
		t.Fatal(err)
	}
	return map[attach.Mode][]bpfobj.Mode{
		attach.ModeSession: {bpfobj.ModeSession, bpfobj.ModeMulti, bpfobj.ModePerf},
		attach.ModeMulti:   {bpfobj.ModeMulti, bpfobj.ModePerf},
		attach.ModePerf:    {bpfobj.ModePerf},
	}[best]
}

func TestAllFunctions(t *testing.T) {
	testutil.RequireBPF(t)
	bin := testutil.BuildC(t, []string{
		"testdata/targets/c/allfuncs.c", "testdata/targets/c/allfuncs_heap.c", "testdata/targets/c/allfuncs_maps.c",
	}, "-fno-builtin")
	for _, how := range []string{"start", "mid"} {
		for _, mode := range modes(t) {
			t.Run(fmt.Sprintf("%s/%v", how, mode), func(t *testing.T) {
				target := testutil.Start(t, bin, how)
				target.WaitLine("READY")
				s := startSession(t, target, tracer.Options{Modes: []bpfobj.Mode{mode}})
				target.Send("go")
				want := merged(said(t, target.WaitLine("SITES")))
				var totals struct {
					Allocations    int64 `json:"allocations"`
					Frees          int64 `json:"frees"`
					FreesUnmatched int64 `json:"frees_unmatched"`
					FailedCalls    int64 `json:"failed_calls"`
					ThreadExits    int64 `json:"thread_exits"`
				}
				line := target.WaitLine("TOTALS")
				if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "TOTALS ")), &totals); err != nil {
					t.Fatal(err)
				}
				target.WaitLine("DONE")
				snap := finish(t, s)
				requireComplete(t, snap)
				got := merged(traced(snap, want))
				// What the C library allocates for its own threads is in no site.
				got = slices.DeleteFunc(got, func(s siteTotals) bool { return s.Site == "(none)" })
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("sites differ (-target +traced):\n%s", diff)
				}
				c := snap.Coverage
				if totals.ThreadExits == 0 && c.FreesUnmatched != totals.FreesUnmatched ||
					c.FreesUnmatched < totals.FreesUnmatched {
					t.Errorf("%d unmatched frees, want %d", c.FreesUnmatched, totals.FreesUnmatched)
				}
				if c.FailedCalls != totals.FailedCalls {
					t.Errorf("%d failed calls, want %d", c.FailedCalls, totals.FailedCalls)
				}
			})
		}
	}
}

func TestRandomOperations(t *testing.T) {
	testutil.RequireBPF(t)
	bin := testutil.BuildC(t, []string{"testdata/targets/c/randops.c", "testdata/targets/c/randops_sites.c"}, "-fno-builtin")
	for seed, o := range []tracer.Options{{}, {}, {NoReuse: true}} {
		t.Run(fmt.Sprintf("seed %d reuse %v", seed, !o.NoReuse), func(t *testing.T) {
			target := testutil.Start(t, bin, fmt.Sprint(seed), "1000000", "3")
			target.WaitLine("READY")
			s := startSession(t, target, o)
			target.Send("go")
			want := merged(said(t, target.WaitLine("SITES")))
			target.WaitLine("DONE")
			snap := finish(t, s)
			requireComplete(t, snap)
			if diff := gocmp.Diff(want, merged(traced(snap, want))); diff != "" {
				t.Errorf("sites differ (-target +traced):\n%s", diff)
			}
			if n := snap.Coverage.FreesUnmatched; n != 0 {
				t.Errorf("%d unmatched frees, want none", n)
			}
		})
	}
}
