// SPDX-License-Identifier: Apache-2.0

package ledger

// ghost is a piece that a younger mapping replaced before the call that gave
// the range up had returned.
type ghost struct {
	start, end uint64
	born       uint64 // when the call that mapped the piece returned
	gone       uint64 // when the call that replaced it returned
}

// maxGhosts bounds what is remembered. A ghost is needed until the call that
// gave its range up returns, so this is the number of mappings that may be
// replaced while one call is on its way back from the kernel.
const maxGhosts = 1024

// ghosts remembers the last pieces that were replaced.
type ghosts struct {
	ring []ghost
	next int // where the next one goes once the ring is full
}

func (g *ghosts) add(x ghost) {
	if len(g.ring) < maxGhosts {
		g.ring = append(g.ring, x)
		return
	}
	g.ring[g.next] = x
	g.next = (g.next + 1) % maxGhosts
}

// had reports whether a call entered at the given time found a piece in
// [start, end) that has been replaced since.
func (g *ghosts) had(start, end, entry uint64) bool {
	for i := range g.ring {
		x := &g.ring[i]
		if x.start < end && start < x.end && x.born <= entry && entry < x.gone {
			return true
		}
	}
	return false
}
