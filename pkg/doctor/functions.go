// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/python"
)

// functions tells where the target's allocation functions are: its C library,
// other allocators, and what cannot be probed.
func functions(p *proc.Process, maps []proc.Mapping) []Finding {
	planner := attach.NewPlanner(p.OpenMapping, alloc.HostFunctions())
	defer planner.Close()
	probes, skips, err := planner.Plan(maps)
	f := Finding{Area: Target, ID: "functions", Name: "allocation functions", State: OK, Required: true}
	if err != nil { // only of a closed planner
		f.State, f.Reason = Missing, err.Error()
		return []Finding{f}
	}
	count := map[string]int{}
	var files, libc []string
	for _, probe := range probes {
		file := probe.File
		if count[file.Path]++; count[file.Path] > 1 {
			continue
		}
		files = append(files, file.Path)
		if isLibc(file) {
			libc = append(libc, file.Path)
		}
	}
	slices.SortFunc(files, byPath)
	f.Detail = fmt.Sprintf("%d in %s", len(probes), plural(len(files), "file"))
	f.missed(skips)
	if len(probes) == 0 {
		f.State, f.Detail = Missing, "none"
		f.Reason = "no mapped file has a function that hands out memory under a known name"
		f.Remedy = "look whether the program is statically linked and stripped, or not yet started: cat /proc/PID/maps"
	}
	return []Finding{libraries(libc, probes), allocators(files, libc, count), f}
}

// isLibc reports whether a file is a C library: glibc's own functions are known
// as such, musl's by its name.
func isLibc(f *attach.File) bool {
	base := path.Base(f.Path)
	return f.GLIBC || strings.HasPrefix(base, "ld-musl-") || strings.HasPrefix(base, "libc.musl-") || base == "libc.so"
}

func libraries(libc []string, probes []attach.Probe) Finding {
	f := Finding{Area: Target, ID: "libc", Name: "C library", State: OK}
	if len(libc) == 0 {
		f.State, f.Detail = Degraded, "none found"
		f.Reason = "there is neither a glibc nor a musl with functions that can be told; only other allocators count"
		return f
	}
	kind := "musl"
	if slices.ContainsFunc(probes, func(p attach.Probe) bool { return p.File.GLIBC && p.File.Path == libc[0] }) {
		kind = "glibc"
	}
	f.Detail = kind + " in " + libc[0]
	return f
}

// allocators names the files with allocation functions that are no C library.
func allocators(files, libc []string, count map[string]int) Finding {
	f := Finding{Area: Target, ID: "allocators", Name: "other allocators", State: OK, Detail: "none"}
	var list []string
	for _, file := range files {
		if !slices.Contains(libc, file) {
			list = append(list, fmt.Sprintf("%s (%d)", path.Base(file), count[file]))
		}
	}
	if len(list) > 0 {
		f.Detail = "functions in " + some(list)
	}
	return f
}

// missed tells of the functions by which something can go unseen.
func (f *Finding) missed(skips []attach.Skip) {
	var list []string
	for _, s := range skips {
		// What cannot be read is told by the finding about files.
		if s.Cause.Missed() && s.Cause != attach.SkipUnreadable {
			list = append(list, s.String())
		}
	}
	if len(list) > 0 {
		slices.Sort(list)
		f.State = Degraded
		f.Reason = "not all can be probed, so memory may go unseen: " + some(list)
	}
}

// interpreter tells whether there will be Python frames.
func interpreter(p *proc.Process, maps []proc.Mapping, x *images) Finding {
	f := Finding{Area: Target, ID: "python", Name: "Python", State: OK}
	runtime, err := python.Find(p, maps, x.open)
	var unsupported *python.UnsupportedError
	var layout *python.LayoutError
	switch {
	case err == nil:
		f.Detail = fmt.Sprintf("CPython %s in %s", runtime.Version, runtime.Path)
		return f
	case errors.Is(err, python.ErrNoPython):
		f.Detail = "none: stacks are native"
		return f
	case errors.Is(err, python.ErrNotStarted):
		f.Detail, f.Remedy = "not running", "attach once it runs"
	case errors.As(err, &unsupported):
		f.Detail, f.Remedy = "CPython "+unsupported.Version.String(), "CPython 3.9 to 3.14 are supported, without free threading"
	case errors.As(err, &layout):
		f.Detail, f.Remedy = "CPython "+layout.Version.String(), "report this with the interpreter's build id"
	default:
		f.Detail = "cannot be looked at"
	}
	f.State, f.Reason = Degraded, "stacks are native only: "+err.Error()
	return f
}
