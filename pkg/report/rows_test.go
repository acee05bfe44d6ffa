// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"
)

// A Python line is one row, whatever native code allocated below it.
func TestRows(t *testing.T) {
	list := rows(training().Sites)
	if len(list) != 4 {
		t.Fatalf("%d rows, want 2 of Python lines and 2 of native places: %+v", len(list), list)
	}
	first := list[0]
	if first.where != "step" || first.at != "/srv/app/train.py:21" {
		t.Errorf("the first row is of %s at %s", first.where, first.at)
	}
	if want := (tally{15<<20 + 4<<10, 17, 90 * time.Second}); first.tally != want {
		t.Errorf("it holds %+v, want %+v", first.tally, want)
	}
	if len(first.places) != 6 || first.places[0].via != "libtorch_cpu.so+0x3a51500" || first.places[5].via != "" {
		t.Errorf("its places are %+v, want 6, the largest first", first.places)
	}
	var sum tally
	for _, p := range first.places {
		sum.add(p.tally)
	}
	if sum != first.tally {
		t.Errorf("its places hold %+v", sum)
	}
}
