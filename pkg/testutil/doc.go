// SPDX-License-Identifier: Apache-2.0

// Package testutil is what the project's tests share: preconditions that skip
// with a reason, compiled and running targets, the CPythons of the machine, and
// a check for leaked file descriptors. It is imported by tests only.
//
// It starts real processes and compiles real programs, writes under
// testing.TB.TempDir (and, for a target in another root, under that root's
// /tmp), and removes both when the test ends. It never waits by sleeping: a
// target prints a marker, and [Target.WaitLine] waits for it with a deadline.
//
// A precondition that does not hold skips the test. With REQUIRE_BPF=1 in the
// environment, as `make test` sets for root and CI always does, such a skip is
// a failure: a test that silently stopped running is worse than none.
package testutil
