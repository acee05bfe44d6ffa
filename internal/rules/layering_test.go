// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// layer is each stage's place in the pipeline. A stage is a package with those in
// folders below it; it imports only stages of lower layers.
var layer = map[string]int{
	"pkg/alloc": 0,

	"pkg/elfsym":   1,
	"pkg/kfeature": 1,
	"pkg/ledger":   1,
	"pkg/proc":     1,

	"pkg/attach":    2,
	"pkg/bpfobj":    2,
	"pkg/profile":   2,
	"pkg/python":    2,
	"pkg/report":    2,
	"pkg/symbolize": 2,
	"pkg/unwind":    2,

	"pkg/doctor": 3,
	"pkg/tracer": 3,
}

// unobserving packages work on what was observed, so they must build, and be
// tested, where there is no BPF. They never reach any of observing.
var (
	unobserving = []string{"pkg/alloc", "pkg/ledger", "pkg/leak", "pkg/profile", "pkg/report", "pkg/symbolize"}
	observing   = []string{"pkg/bpfobj", "pkg/attach", "pkg/tracer", "github.com/cilium/ebpf"}
)

// importGraph returns what each package of the project imports, tests aside: its
// own packages by folder, others by path.
func importGraph(repo *repository) map[string][]string {
	graph := map[string][]string{}
	for _, f := range repo.files {
		if f.ast == nil || f.test() {
			continue
		}
		if _, ok := graph[f.dir()]; !ok {
			graph[f.dir()] = nil
		}
		for _, spec := range f.ast.Imports {
			path := strings.TrimPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
			if !slices.Contains(graph[f.dir()], path) {
				graph[f.dir()] = append(graph[f.dir()], path)
			}
		}
	}
	return graph
}

func TestImportsGoDown(t *testing.T) {
	graph := importGraph(read(t))
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		if !strings.HasPrefix(from, "pkg/") || forTests(from) {
			continue
		}
		own, ok := layer[stage(from)]
		if !ok {
			t.Errorf("%s has no layer: give it one in %s", from, "internal/rules/layering_test.go")
			continue
		}
		for _, to := range graph[from] {
			switch below, ours := layer[stage(to)]; {
			case strings.HasPrefix(to, "cmd/"):
				t.Errorf("%s imports %s: pkg never imports cmd; pass what it needs in", from, to)
			case ours && below >= own && stage(to) != stage(from):
				t.Errorf("%s (layer %d) imports %s (layer %d): import lower layers only; declare an interface where it is used, or move the shared value down",
					from, own, to, below)
			}
		}
	}
}

// stage returns the stage that a package belongs to: pkg/x of pkg/x/y/z.
func stage(p string) string {
	parts := strings.SplitN(p, "/", 3)
	return strings.Join(parts[:min(len(parts), 2)], "/")
}

// forTests reports whether a package exists for tests: testutil, and elftest as
// httptest is.
func forTests(p string) bool {
	return stage(p) == "pkg/testutil" || strings.HasPrefix(p, "pkg/") && strings.HasSuffix(p, "test")
}

func TestProfileHalfNeedsNoBPF(t *testing.T) {
	graph := importGraph(read(t))
	for _, from := range unobserving {
		if chain := reach(graph, from, observing); chain != nil {
			t.Errorf("%s: it works on what was observed and must build without BPF; take plain values of pkg/alloc instead",
				strings.Join(chain, " imports "))
		}
	}
}

// reach returns a chain of imports from one package to any of the targets or
// their subpackages, nil if there is none.
func reach(graph map[string][]string, from string, targets []string) []string {
	seen := map[string]bool{}
	var visit func(string) []string
	visit = func(p string) []string {
		for _, target := range targets {
			if p == target || strings.HasPrefix(p, target+"/") {
				return []string{p}
			}
		}
		if seen[p] {
			return nil
		}
		seen[p] = true
		for _, q := range graph[p] {
			if chain := visit(q); chain != nil {
				return append([]string{p}, chain...)
			}
		}
		return nil
	}
	return visit(from)
}

func TestReach(t *testing.T) {
	graph := map[string][]string{"a": {"b", "c"}, "b": {"a"}, "c": {"d/e"}}
	if got := reach(graph, "a", []string{"d"}); !slices.Equal(got, []string{"a", "c", "d/e"}) {
		t.Errorf("got %q", got)
	}
	if got := reach(graph, "b", []string{"e"}); got != nil {
		t.Errorf("got %q, want no chain", got)
	}
}

func TestTestPackagesAreForTests(t *testing.T) {
	for from, imports := range importGraph(read(t)) {
		for _, to := range imports {
			if forTests(to) && !forTests(from) && !strings.HasPrefix(from, "testdata/") {
				t.Errorf("%s imports %s outside a test", from, to)
			}
		}
	}
}

func TestCobraIsForCmd(t *testing.T) {
	for from, imports := range importGraph(read(t)) {
		for _, to := range imports {
			if strings.HasPrefix(to, "github.com/spf13/") && !strings.HasPrefix(from, "cmd/") {
				t.Errorf("%s imports %s: flags belong in cmd; take an options struct", from, to)
			}
		}
	}
}

func TestPackageNames(t *testing.T) {
	vague := []string{"util", "utils", "common", "types", "helpers", "misc", "base", "shared"}
	for _, f := range read(t).files {
		if f.ast != nil && slices.Contains(vague, strings.TrimSuffix(f.ast.Name.Name, "_test")) {
			t.Errorf("%s: package %s says nothing of what it holds; name it for its stage of the pipeline", f.path, f.ast.Name.Name)
		}
	}
}
