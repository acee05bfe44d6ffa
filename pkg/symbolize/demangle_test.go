// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"strings"
	"testing"
)

func TestReadable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"malloc", "malloc"},
		{"_Znwm", "operator new"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector::push_back"},
		{"_ZN2at6native12_GLOBAL__N_13addERKNS_6TensorE", "at::native::(anonymous namespace)::add"},
		{"_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()"},
		{"_Z3foov.cold", "foo"},
		{"_Z3fooi.constprop.0.isra.1", "foo"},
		{"_ZN3FooC4Ev", "Foo::Foo"},
		{"_ZN3FooD0Ev", "Foo::~Foo"},
		{"_ZN3Foo3barEv.llvm.12345", "Foo::bar"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
		{"_Zgarbage", "_Zgarbage"},
		{"_R", "_R"},
		{"_ZTV", "_ZTV"},
		{"list_dealloc.cold", "list_dealloc"},
		{"_PyEval_EvalFrameDefault.part.0.constprop.12.cold", "_PyEval_EvalFrameDefault"},
		{"unlink_chunk.isra.0", "unlink_chunk"},
		{"call.lto_priv.3", "call"},
		{"main.foo", "main.foo"},
		{"runtime.mallocgc.func1", "runtime.mallocgc.func1"},
		{"a.part", "a.part"},
		{".L123", ".L123"},
		{"x.", "x."},
		{"", ""},
	} {
		if got := readable(c.in); got != c.want {
			t.Errorf("readable(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestReadableIsBounded(t *testing.T) {
	long := "_Z" + strings.Repeat("N", maxMangled)
	if got := readable(long); got != long {
		t.Errorf("a name of %d bytes became %.40q", len(long), got)
	}
	// Each substitution doubles what the one before stands for.
	var b strings.Builder
	b.WriteString("_Z1fSt4pairI")
	for range 40 {
		b.WriteString("St4pairIS_S_ES")
	}
	if got := readable(b.String()); len(got) > max(1<<maxDemangledLog2, b.Len()) {
		t.Errorf("a name of %d bytes became one of %d", b.Len(), len(got))
	}
}

func FuzzReadable(f *testing.F) {
	for _, s := range []string{"_ZNSt6vectorIiSaIiEE9push_backERKi", "_RNvCs1234_7mycrate3foo", "a.part.0.cold", "_ZN1a17h0123456789abcdefE"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := readable(s); s != "" && got == "" || len(got) > max(1<<maxDemangledLog2, len(s)) {
			t.Errorf("readable(%q) = %q", s, got)
		}
	})
}
