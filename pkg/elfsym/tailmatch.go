// SPDX-License-Identifier: Apache-2.0

package elfsym

import "bytes"

// maxVersion is the longest symbol version looked for behind a name.
const maxVersion = 64

// tailMatcher tells which of a set of names a string ends with. Almost all
// strings are turned down by one bit of their last two bytes.
type tailMatcher struct {
	names   map[uint16][]string // by last two bytes
	keys    [1 << 10]uint64     // bit set of the keys of names
	short   []string            // names of one byte
	longest int                 // of the names, with a version
}

func newTailMatcher(names []string) *tailMatcher {
	m := &tailMatcher{names: make(map[uint16][]string)}
	for _, n := range names {
		if n == "" || len(n) > maxName {
			continue
		}
		m.longest = max(m.longest, len(n)+maxVersion)
		if len(n) == 1 {
			m.short = append(m.short, n)
			continue
		}
		k := tailKey(n[len(n)-2], n[len(n)-1])
		m.names[k] = append(m.names[k], n)
		m.keys[k/64] |= 1 << (k % 64)
	}
	return m
}

func tailKey(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// match calls fn with each name that b ends with, and where in b it starts. A
// version suffix of the string that b ends with is cut off first.
func (m *tailMatcher) match(b []byte, fn func(off int, name string)) {
	tail := b[max(0, len(b)-maxVersion):]
	if i := bytes.LastIndexByte(tail, 0); i >= 0 {
		tail = tail[i+1:]
	}
	if i := bytes.IndexByte(tail, '@'); i > 0 {
		m.matchEnd(b[:len(b)-len(tail)+i], fn)
	}
	m.matchEnd(b, fn)
}

func (m *tailMatcher) matchEnd(b []byte, fn func(off int, name string)) {
	if len(b) < 1 {
		return
	}
	if len(b) >= 2 {
		k := tailKey(b[len(b)-2], b[len(b)-1])
		if m.keys[k/64]>>(k%64)&1 != 0 {
			m.matchKey(k, b, fn)
		}
	}
	for _, n := range m.short {
		if b[len(b)-1] == n[0] {
			fn(len(b)-1, n)
		}
	}
}

func (m *tailMatcher) matchKey(k uint16, b []byte, fn func(off int, name string)) {
	for _, n := range m.names[k] {
		if bytes.HasSuffix(b, []byte(n)) {
			fn(len(b)-len(n), n)
		}
	}
}
