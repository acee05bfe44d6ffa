// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
)

// mapped returns the mapping of a file as a whole, as if some process had it.
func mapped(tb testing.TB, path string) proc.Mapping {
	tb.Helper()
	st, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	return proc.Mapping{
		Start: 0x10000000, End: 0x10000000 + uint64(st.Size()),
		Dev: sys.Dev, Inode: sys.Ino, Read: true, Exec: true, Path: path,
	}
}

func openPath(m proc.Mapping) (*os.File, error) { return os.Open(m.Path) }

// names returns the functions of probes and of skips, the latter with causes.
func names(probes []Probe, skips []Skip) (probed []string, skipped map[string]SkipCause) {
	for _, p := range probes {
		probed = append(probed, p.Function.Name)
	}
	skipped = map[string]SkipCause{}
	for _, s := range skips {
		skipped[s.Function] = s.Cause
	}
	return probed, skipped
}

// buildLibrary compiles C code into a shared library.
func buildLibrary(tb testing.TB, code string, flags ...string) string {
	tb.Helper()
	src := filepath.Join(tb.TempDir(), "library.c")
	if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
		tb.Fatal(err)
	}
	return testutil.BuildC(tb, []string{src}, append([]string{"-shared", "-fPIC", "-fno-builtin"}, flags...)...)
}

func TestPlanLibraries(t *testing.T) {
	const body = `#include <stddef.h>
		static char memory[4096]; volatile size_t used;
		void *malloc(size_t n) { used += n; return memory; }
		__attribute__((noipa)) void free(void *p) { if (p) used -= *(size_t *)p; }
		void *calloc(size_t, size_t);
	`
	for _, c := range []struct {
		name    string
		code    string
		flags   []string
		probed  []string
		skipped map[string]SkipCause
	}{
		{
			name: "nothing", code: "int x(void) { return 1; }",
		},
		{
			name: "only imports", code: "#include <stdlib.h>\nvoid *x(void) { return malloc(1); }",
		},
		{
			name: "an allocator", code: body + "void *_Znwm(size_t n) { used += 2 * n; return memory; }",
			probed: []string{"malloc", "free", "_Znwm"},
		},
		{
			name: "operators of a C++ runtime", code: "#include <stdlib.h>\nvoid *_Znwm(size_t n) { return malloc(n); }",
		},
		{
			name:   "a program with libc and C++ runtime linked in",
			code:   body + "void *_Znwm(size_t n) { return malloc(n ? n : 1); } void __libc_start_main(void) {}",
			probed: []string{"malloc", "free"},
		},
		{
			name: "the dynamic loader", code: body + "int _rtld_global;",
			skipped: map[string]SkipCause{"": SkipLoader},
		},
		{
			name: "an indirect function",
			code: body + "static void *get(void) { return malloc; } void *valloc(size_t) __attribute__((ifunc(\"get\")));", flags: []string{"-Wno-attribute-alias"},
			probed: []string{"malloc", "free"}, skipped: map[string]SkipCause{"valloc": SkipIndirect},
		},
		{
			name:   "one function under two names",
			code:   body + "void cfree(void *) __attribute__((alias(\"free\")));",
			probed: []string{"malloc", "free"},
		},
		{
			name: "a jump through the PLT", code: body + "void cfree(void *p) { free(p); }",
			probed: []string{"malloc", "free"}, skipped: map[string]SkipCause{"cfree": SkipForwards},
		},
		{
			name: "a jump through the GOT", code: body + "void cfree(void *p) { free(p); }", flags: []string{"-fno-plt"},
			probed: []string{"malloc", "free"}, skipped: map[string]SkipCause{"cfree": SkipForwards},
		},
		{
			name: "a direct jump", code: body + "void cfree(void *p) { free(p); }", flags: []string{"-Wl,-Bsymbolic", "-fvisibility=protected"},
			probed: []string{"malloc", "free"}, skipped: map[string]SkipCause{"cfree": SkipForwards},
		},
		{
			name: "a jump with other arguments, behind endbr64", flags: []string{"-fcf-protection"},
			code:   body + "void *memalign(size_t a, size_t n) { used += a + n; return memory; } void *valloc(size_t n) { return memalign(4096, n); }",
			probed: []string{"malloc", "memalign", "free"}, skipped: map[string]SkipCause{"valloc": SkipForwards},
		},
		{
			name: "a jump to a function that another file defines", code: body + "void free_sized(void *p) { free(p); } void *valloc(size_t n) { return calloc(n, 1); }",
			probed: []string{"malloc", "free"}, skipped: map[string]SkipCause{"free_sized": SkipForwards, "valloc": SkipForwards},
		},
		{
			name:   "a jump to a function of another role",
			code:   body + "void *realloc(void *, size_t); void cfree(void *p) { realloc(p, 0); }",
			flags:  []string{"-Wno-unused-result"},
			probed: []string{"malloc", "free", "cfree"},
		},
		{
			name: "a jump behind a condition", code: body + "void cfree(void *p) { if (used) free(p); }",
			probed: []string{"malloc", "free", "cfree"},
		},
		{
			name:   "functions that jump to each other",
			code:   `__asm__(".globl free, cfree; .type free, @function; .type cfree, @function; free: jmp .Lc; cfree: .Lc: jmp free@plt");`,
			probed: []string{"free", "cfree"},
		},
		{
			name:   "symbols without type or size",
			code:   `__asm__(".text; .globl malloc; malloc: push %rbx; pop %rbx; ret");`,
			probed: []string{"malloc"},
		},
		{
			name: "glibc's chunks under another allocator", code: body + "void gnu_get_libc_version(void) {} void tc_malloc(void) {}",
			probed: []string{"malloc", "free", "tc_malloc"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := buildLibrary(t, c.code, c.flags...)
			p := NewPlanner(openPath, alloc.HostFunctions())
			defer p.Close()
			probes, skips, err := p.Plan([]proc.Mapping{mapped(t, path)})
			if err != nil {
				t.Fatal(err)
			}
			probed, skipped := names(probes, skips)
			if c.skipped == nil {
				c.skipped = map[string]SkipCause{}
			}
			if d := cmp.Diff(c.probed, probed); d != "" {
				t.Errorf("probed (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.skipped, skipped); d != "" {
				t.Errorf("skipped (-want +got):\n%s", d)
			}
		})
	}
}

// TestPlanStripped finds functions in .symtab, and none without it.
func TestPlanStripped(t *testing.T) {
	const code = `#include <stddef.h>
		static char memory[4096];
		void *_rjem_malloc(size_t n) { memory[0] = n; return memory; }`
	path := buildLibrary(t, code, "-fvisibility=hidden")
	plan := func() []string {
		p := NewPlanner(openPath, alloc.HostFunctions())
		defer p.Close()
		probes, skips, err := p.Plan([]proc.Mapping{mapped(t, path)})
		if err != nil || len(skips) > 0 {
			t.Fatal(skips, err)
		}
		probed, _ := names(probes, nil)
		return probed
	}
	if d := cmp.Diff([]string{"_rjem_malloc"}, plan()); d != "" {
		t.Errorf("with .symtab (-want +got):\n%s", d)
	}
	testutil.RequireTool(t, "strip")
	if out, err := exec.Command("strip", path).CombinedOutput(); err != nil {
		t.Fatalf("stripping: %v\n%s", err, out)
	}
	if probed := plan(); probed != nil {
		t.Errorf("stripped: probed %v", probed)
	}
}

// TestPlanFiles covers files that are no library, or cannot be read.
func TestPlanFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) proc.Mapping {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return mapped(t, path)
	}
	header := make([]byte, 64)
	copy(header, elf.ELFMAG)
	text, empty, corrupt := write("text", []byte("no library\n")), write("empty", nil), write("corrupt", header)
	gone := write("gone", nil)
	if err := os.Remove(gone.Path); err != nil {
		t.Fatal(err)
	}
	data := mapped(t, buildLibrary(t, "void free(void *p) { (void)p; }"))
	data.Exec = false

	p := NewPlanner(openPath, alloc.HostFunctions())
	probes, skips, err := p.Plan([]proc.Mapping{text, empty, corrupt, gone, data})
	if err != nil || len(probes) > 0 {
		t.Fatal(probes, err)
	}
	var files []string
	for _, s := range skips {
		files = append(files, filepath.Base(s.File))
		if s.Cause != SkipUnreadable || !s.Cause.Missed() {
			t.Errorf("cause of %v is %d", s, s.Cause)
		}
	}
	if d := cmp.Diff([]string{"corrupt", "gone"}, files); d != "" {
		t.Errorf("skipped files (-want +got):\n%s", d)
	}

	// The missing one is tried again, and told of once.
	if _, skips, _ := p.Plan([]proc.Mapping{corrupt, gone}); len(skips) > 0 {
		t.Errorf("second plan skips %v", skips)
	}
	lib, err := os.ReadFile(data.Path)
	if err != nil {
		t.Fatal(err)
	}
	back := write("gone", lib)
	back.Inode = gone.Inode
	if probes, _, _ := p.Plan([]proc.Mapping{back}); len(probes) != 1 {
		t.Errorf("a file that can be read again has %d probes, want 1", len(probes))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := p.Plan(nil); !errors.Is(err, ErrNoPlan) {
		t.Errorf("error after Close is %v, want ErrNoPlan", err)
	}
	if err := p.Close(); err != nil {
		t.Error("second Close:", err)
	}
}

// TestPlanPart leaves out functions whose code is not mapped.
func TestPlanPart(t *testing.T) {
	m := mapped(t, buildLibrary(t, "void free(void *p) { (void)p; }"))
	m.End = m.Start + 64 // the ELF header
	p := NewPlanner(openPath, alloc.HostFunctions())
	defer p.Close()
	probes, skips, err := p.Plan([]proc.Mapping{m})
	if err != nil || len(probes) > 0 {
		t.Fatal(probes, err)
	}
	if _, skipped := names(nil, skips); skipped["free"] != SkipUnmapped {
		t.Errorf("skipped %v", skipped)
	}
}

// TestPlanTarget plans a running process, and again when it has loaded more.
func TestPlanTarget(t *testing.T) {
	testutil.NoLeakedFDs(t)
	tg := startCalls(t, "")
	p := tg.planner(t)
	probes, skips := tg.plan(t, p)
	libc := []string{
		"malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc",
		"valloc", "pvalloc", "free", "mmap", "mremap", "munmap",
	}
	probed, _ := names(probes, nil)
	for _, name := range libc {
		if !slices.Contains(probed, name) {
			t.Errorf("%s is not probed", name)
		}
	}
	for _, pr := range probes {
		if !pr.File.GLIBC || pr.Cookie != uint64(pr.Row) || pr.File.BuildID == "" {
			t.Errorf("probe %v: GLIBC %t, cookie %d, build id %q", &pr, pr.File.GLIBC, pr.Cookie, pr.File.BuildID)
		}
	}
	if len(skips) > 0 {
		t.Errorf("skipped %v", skips)
	}
	if probes, skips := tg.plan(t, p); len(probes)+len(skips) > 0 {
		t.Errorf("second plan has %v and skips %v", probes, skips)
	}
}
