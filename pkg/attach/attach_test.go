// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// modes are those to test, each forced.
var modes = []Mode{ModeSession, ModeMulti, ModePerf}

// fastModes leaves out ModePerf where the kernel has a better one: to take out
// perf events takes it 0.1 s each.
func fastModes(tb testing.TB) []Mode {
	tb.Helper()
	testutil.RequireBPF(tb)
	best, err := Supported()
	if err != nil {
		tb.Fatal(err)
	}
	if best == ModePerf {
		return modes
	}
	return modes[:2]
}

// requireMode skips the test if the kernel is too old for a mode.
func requireMode(tb testing.TB, m Mode) {
	tb.Helper()
	testutil.RequireBPF(tb)
	since := map[Mode][2]int{ModeSession: {6, 13}, ModeMulti: {6, 10}, ModePerf: {4, 17}}[m]
	err := supports(m)
	if err == nil {
		return
	}
	if !errors.Is(err, ebpf.ErrNotSupported) {
		tb.Fatal(err)
	}
	if have := kernel(tb); slices.Compare(have[:], since[:]) >= 0 {
		testutil.Skipf(tb, "mode %v is missing, which Linux has since %d.%d: %v", m, since[0], since[1], err)
	}
	tb.Skipf("mode %v needs Linux %d.%d: %v", m, since[0], since[1], err)
}

// kernel returns the version of the running kernel.
func kernel(tb testing.TB) (version [2]int) {
	tb.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		tb.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &version[0], &version[1]); err != nil {
		tb.Fatalf("reading the kernel's version %q: %v", release, err)
	}
	return version
}

// round tells what one round of testdata/calls.c calls: by size, and frees.
type round struct {
	calls map[uint64]uint64 // size argument -> calls
	frees uint64            // of other than NULL
	// unseen are those of memory whose address no function returned: that of
	// posix_memalign, unless it calls one that does.
	unseen uint64
	// nested allows a free to call another: gperftools' sized delete calls free
	// for memory at the start of a page.
	nested bool
}

// roundOf returns the round of a target by what its libraries have.
func roundOf(pvalloc, cfree, operators bool) round {
	r := round{
		calls: map[uint64]uint64{
			1001: 1, 1002: 1, 1003: 1, 1004: 1, 1024: 1, 1006: 1, 1007: 1, 1009: 1, // malloc to valloc, reallocarray
			20480: 1, 28672: 2, // mmap, mremap and munmap
		},
		frees:  7,
		unseen: 1,
	}
	if pvalloc {
		r.calls[1008]++
		r.frees++
	}
	if cfree {
		r.calls[1001]++
		r.frees++
	}
	if operators {
		r.calls[1010] += 2
		r.calls[1011]++
		r.frees += 3
	}
	return r
}

// allocators are the libraries to preload, with their rounds; "" is glibc.
func allocators() map[string]round {
	tcmalloc := roundOf(true, true, true)
	tcmalloc.unseen = 0
	full := tcmalloc
	full.nested = true
	mimalloc := roundOf(true, true, true)
	mimalloc.unseen = 0
	return map[string]round{
		"":                         roundOf(true, false, false),
		"libjemalloc.so.2":         roundOf(false, false, true),
		"libtcmalloc.so.4":         full,
		"libtcmalloc_minimal.so.4": tcmalloc,
		"libmimalloc.so.2":         mimalloc,
	}
}

// isFree and isMunmap pick rows.
func isFree(f *alloc.Function) bool { return f.Role == alloc.RoleFree }

// check compares the counts after a number of rounds.
func (r round) check(t *testing.T, c *counting, rounds uint64) {
	t.Helper()
	for size, calls := range r.calls {
		// A function of the libc may call another with the same size, such as
		// reallocarray. None is hit more often than it is called.
		hits := c.hits(size)
		if size == 28672 {
			for _, name := range []string{"mremap", "munmap"} {
				if hits[name] != rounds {
					t.Errorf("%s has %d hits after %d calls", name, hits[name], rounds)
				}
			}
			continue
		}
		var most uint64
		for _, n := range hits {
			most = max(most, n)
		}
		if most != calls*rounds {
			t.Errorf("size %d has hits %v after %d calls", size, hits, calls*rounds)
		}
	}
}

// TestHits counts the calls of every function in every libc, allocator and mode,
// from threads that are older and younger than the probes: one hit a call, with
// the arguments and the result where the C calling convention has them.
func TestHits(t *testing.T) {
	all := allocators()
	for _, lib := range slices.Sorted(maps.Keys(all)) {
		name, some := "glibc", modes
		if lib != "" {
			name, some = lib, fastModes(t)
		}
		forModes(t, name, some, func(t *testing.T, mode Mode) {
			testHits(t, startCalls(t, lib), mode, all[lib])
		})
	}
	forModes(t, "glibc static", fastModes(t), func(t *testing.T, mode Mode) {
		exe := testutil.BuildC(t, []string{callsSource}, "-static", "-DSTATIC")
		testHits(t, watch(t, testutil.Start(t, exe)), mode, roundOf(false, false, false))
	})
	musl := roundOf(false, false, false)
	musl.unseen = 0
	forModes(t, "musl", fastModes(t), func(t *testing.T, mode Mode) {
		exe := testutil.BuildWith(t, "musl-gcc", []string{callsSource})
		testHits(t, watch(t, testutil.Start(t, exe)), mode, musl)
	})
	forModes(t, "musl static", fastModes(t), func(t *testing.T, mode Mode) {
		exe := testutil.BuildWith(t, "musl-gcc", []string{callsSource}, "-static", "-DSTATIC")
		testHits(t, watch(t, testutil.Start(t, exe)), mode, musl)
	})
}

// forModes runs a test in each of some modes that the kernel has.
func forModes(t *testing.T, name string, some []Mode, test func(*testing.T, Mode)) {
	for _, mode := range some {
		t.Run(strings.Trim(name+"/"+mode.String(), "/"), func(t *testing.T) {
			requireMode(t, mode)
			test(t, mode)
		})
	}
}

func testHits(t *testing.T, tg *target, mode Mode, r round) {
	c := newCounting(t, mode)
	for size := range r.calls {
		c.watchSize(size)
	}
	probes, _ := tg.plan(t, tg.planner(t))
	if mode != ModeSession {
		r.calls = maps.Clone(r.calls)
		// Operator new may throw, so it is left out.
		for _, size := range []uint64{1010, 1011} {
			r.unseen += r.calls[size]
			delete(r.calls, size)
		}
	}
	a := tg.attached(t, c, mode, probes)
	tg.order("run 10")
	r.check(t, c, 10)

	frees := c.total(isFree)
	if frees.Known != 10*(r.frees-r.unseen) || frees.Unknown != 10*r.unseen && !r.nested {
		t.Errorf("frees are %+v, want %d of which %d unknown", frees, 10*r.frees, 10*r.unseen)
	}
	all := c.total((*alloc.Function).ReturnProbed)
	if all.Returns != all.Hits {
		t.Errorf("%d entries and %d returns", all.Hits, all.Returns)
	}

	tg.order("parked 10")
	r.check(t, c, 20)
	tg.order("threads 5 4")
	r.check(t, c, 40)
	tg.order("fork 10")
	r.check(t, c, 40)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	tg.order("run 10")
	r.check(t, c, 40)
}
