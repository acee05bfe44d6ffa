// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"cmp"
	"slices"
	"sync"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// troubles counts what went wrong in user space while a session ran. Safe for
// concurrent use.
type troubles struct {
	mu    sync.Mutex
	count map[string]*alloc.Cause
}

// add counts one; the first detail of a name is kept.
func (t *troubles) add(name, detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]*alloc.Cause{}
	}
	c, ok := t.count[name]
	if !ok {
		c = &alloc.Cause{Name: name, Detail: detail}
		t.count[name] = c
	}
	c.Count++
}

// all returns the counts, sorted by name.
func (t *troubles) all() []alloc.Cause {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []alloc.Cause
	for _, c := range t.count {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b alloc.Cause) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
