// SPDX-License-Identifier: Apache-2.0

package tracer_test

import (
	"context"
	"testing"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/testutil"
	"github.com/unfreed/unfreed/pkg/tracer"
)

// startSession attaches to a target. The session is closed with the test, if
// not before.
func startSession(t *testing.T, target *testutil.Target, o tracer.Options) *tracer.Session {
	t.Helper()
	p, err := proc.Open(target.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s, err := tracer.Start(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// finish ends a session whose target is at rest.
func finish(t *testing.T, s *tracer.Session) *alloc.Snapshot {
	t.Helper()
	snap, err := s.Finish(tracer.End{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}
