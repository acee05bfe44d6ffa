// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"os"
	"testing"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/elfsym"
	"github.com/unfreed/unfreed/pkg/proc"
)

// FuzzMatch looks for functions in files that are broken or hostile: code,
// symbols, PLT and relocations may be anything.
func FuzzMatch(f *testing.F) {
	const body = `#include <stddef.h>
		static char memory[64]; volatile size_t used;
		void *malloc(size_t n) { used += n; return memory; }
		void free(void *p) { if (p) used--; }
		void cfree(void *p) { free(p); }
		void *memalign(size_t a, size_t n) { used += a + n; return memory; }
		void *valloc(size_t n) { return memalign(4096, n); }`
	for _, flags := range [][]string{nil, {"-fno-plt"}, {"-fcf-protection"}, {"-nostdlib", "-s"}} {
		image, err := os.ReadFile(buildLibrary(f, body, append(flags, "-g0")...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(image)
	}
	m := newMatcher(alloc.HostFunctions())
	f.Fuzz(func(t *testing.T, data []byte) {
		image, err := elfsym.Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		whole := &mappedFile{maps: []proc.Mapping{{End: uint64(len(data))}}}
		r, _ := m.file(&File{}, image, whole)
		for i := range r.probes {
			p := &r.probes[i]
			if p.Offset >= uint64(len(data)) {
				t.Errorf("probe at offset %#x of %#x bytes", p.Offset, len(data))
			}
			if p.Placement.function(p.Function).Args() >= 1<<6 {
				t.Errorf("probe %v reads arguments %b", p, p.Function.Args())
			}
		}
	})
}
