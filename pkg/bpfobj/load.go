// SPDX-License-Identifier: Apache-2.0

// Package bpfobj holds the compiled BPF programs: it loads them, writes their
// tables, reads their maps and turns the raw records of the ring buffer into
// values. It is the only package that sees the generated types; what it hands
// out are types of its own.
//
// Objects owns every map and program; Close frees them. Its methods may be
// called from several goroutines unless they say otherwise. It attaches
// nothing: links are pkg/attach's.
package bpfobj

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
)

// Mode is the kind of link the programs are made for.
type Mode int

// The modes, best first.
const (
	ModeSession Mode = iota // entry and return in one program; Linux 6.13
	ModeMulti               // uprobe_multi; Linux 6.6
	ModePerf                // one perf event a function
)

// String returns the mode's name for people.
func (m Mode) String() string {
	return [...]string{"uprobe session", "uprobe multi", "perf uprobe"}[m]
}

// programs that each mode needs. Everything else is left out of the load.
var programs = map[Mode][]string{
	ModeSession: {"call_session", "free_multi", "loader_multi"},
	ModeMulti:   {"call_entry", "call_return", "free_multi", "loader_multi"},
	ModePerf:    {"perf_entry", "perf_return", "perf_free", "loader_perf"},
}

var always = []string{"process_exec", "process_fork"}

// Options are fixed once the programs are loaded.
type Options struct {
	Mode        Mode
	SampleBytes int64 // mean sampling interval; 1 takes every allocation
	Native      bool  // unwind native frames
	NoReuse     bool  // unwind every stack from end to end, for comparison
	Python      *PythonLayout

	MaxLive  int // outstanding allocations; 0 is DefaultMaxLive
	MaxSites int // distinct stacks; 0 is DefaultMaxSites

	// Room for unwind tables: pages, rows and infos of all files, those that
	// are loaded later included.
	Pages, Rows, Infos int

	// A request of this many bytes may be refused, and this is how many
	// mappings a process may have: see bpf/lib/throw.h.
	RefusedBytes, MaxMappings uint64

	// The target in its own PID namespace.
	PIDNSDev, PIDNSIno uint64
	PIDNSTgid          int
}

const (
	// DefaultMaxLive costs 64 MiB of hash buckets; the elements are allocated
	// as they are needed, about 100 bytes each.
	DefaultMaxLive = 1 << 22
	// DefaultMaxSites is far above what services of millions of lines show.
	DefaultMaxSites = 1 << 18
)

// Objects are the loaded programs and maps.
type Objects struct {
	coll  *ebpf.Collection
	mode  Mode
	half  uint32 // of the mappings array that is in use
	gen   uint64 // of the mappings
	epoch uint64 // of the meaning of addresses
}

// Load verifies and loads the programs of one mode. Sleepable programs, which
// can wait for a stack page that is swapped out, are always asked for: every
// kernel that runs the rest has them. Errors wrap those of the ebpf library;
// an *ebpf.VerifierError carries the verifier's log.
func Load(o Options) (*Objects, error) {
	spec, err := loadAlloc()
	if err != nil {
		return nil, fmt.Errorf("reading the BPF object: %w", err)
	}
	keep := map[string]bool{}
	for _, n := range append(programs[o.Mode], always...) {
		keep[n] = true
	}
	for n := range spec.Programs {
		if !keep[n] {
			delete(spec.Programs, n)
		}
	}
	size(spec, o)
	if err := configure(spec, o); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the BPF programs: %w", err)
	}
	return &Objects{coll: coll, mode: o.Mode}, nil
}

func size(spec *ebpf.CollectionSpec, o Options) {
	set := func(name string, n int) {
		if n > 0 {
			spec.Maps[name].MaxEntries = uint32(min(n, math.MaxUint32))
		}
	}
	set("unwind_pages", (o.Pages+1)/2)
	set("unwind_rows", (o.Rows+1)/2)
	set("unwind_infos", o.Infos)
	set("live", o.MaxLive)
	set("sites", o.MaxSites)
}

func configure(spec *ebpf.CollectionSpec, o Options) error {
	vars := map[string]any{
		"sleepable":     uint32(1),
		"sample_bytes":  uint64(max(o.SampleBytes, 1)),
		"native_on":     bool32(o.Native),
		"no_reuse":      bool32(o.NoReuse),
		"refused_bytes": o.RefusedBytes,
		"max_mappings":  o.MaxMappings,
		"pidns_dev":     o.PIDNSDev,
		"pidns_ino":     o.PIDNSIno,
		"pidns_tgid":    uint32(o.PIDNSTgid),
		"exponential":   exponentialTable(),
	}
	if o.Python != nil {
		vars["python"] = o.Python.wire()
	}
	for name, value := range vars {
		v, ok := spec.Variables[name]
		if !ok {
			return fmt.Errorf("configuring the BPF programs: no variable %q", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("setting BPF variable %q: %w", name, err)
		}
	}
	return nil
}

func bool32(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

const (
	exponentialBits  = 10 // EXP_BITS of bpf/lib/sample.h
	exponentialShift = 20 // EXP_SHIFT
)

// exponentialTable is -ln(i/2^bits) in units of 2^-shift; its first entry is
// where the distribution begins anew, -ln(1/2^bits).
func exponentialTable() [1<<exponentialBits + 1]uint32 {
	var t [1<<exponentialBits + 1]uint32
	for i := 1; i < len(t); i++ {
		t[i] = uint32(math.Round(-math.Log(float64(i)/(1<<exponentialBits)) * (1 << exponentialShift)))
	}
	t[0] = t[1]
	return t
}

// Program returns a program of the loaded mode by its name in alloc.bpf.c, nil
// if the mode has none. It stays owned by Objects.
func (o *Objects) Program(name string) *ebpf.Program { return o.coll.Programs[name] }

// Mode returns the mode the programs were loaded for.
func (o *Objects) Mode() Mode { return o.mode }

// Stop ends all counting at once, before the links are removed. What is in the
// maps stays as it is.
func (o *Objects) Stop() error {
	if err := o.coll.Variables["stopped"].Set(uint32(1)); err != nil {
		return fmt.Errorf("stopping the BPF programs: %w", err)
	}
	return nil
}

// KeepRaw says whether stacks that end in code without a mapping are copied, to
// be unwound when the code is known. It is on after Load.
func (o *Objects) KeepRaw(on bool) error {
	if err := o.coll.Variables["raw_on"].Set(bool32(on)); err != nil {
		return fmt.Errorf("switching raw stacks: %w", err)
	}
	return nil
}

// Memory returns the bytes of kernel memory that the maps and programs take.
func (o *Objects) Memory() (int64, error) {
	var sum int64
	var errs []error
	for name, m := range o.coll.Maps {
		info, err := m.Info()
		if err != nil {
			errs = append(errs, fmt.Errorf("asking for map %s: %w", name, err))
			continue
		}
		if n, ok := info.Memlock(); ok {
			sum += int64(n)
		}
	}
	return sum, errors.Join(errs...)
}

// Runs returns how often the programs ran and how long, since the kernel's
// statistics were enabled (ebpf.EnableStats).
func (o *Objects) Runs() (count uint64, nanoseconds uint64, err error) {
	for name, p := range o.coll.Programs {
		st, err := p.Stats()
		if err != nil {
			return 0, 0, fmt.Errorf("asking for program %s: %w", name, err)
		}
		count += st.RunCount
		nanoseconds += uint64(st.Runtime.Nanoseconds())
	}
	return count, nanoseconds, nil
}

// Close frees all maps and programs. Links must have been closed before.
func (o *Objects) Close() error {
	o.coll.Close()
	return nil
}
