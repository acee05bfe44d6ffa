// SPDX-License-Identifier: Apache-2.0

// Package kfeature finds out what the running kernel can do, and what this
// process is allowed to do with it.
//
// [Have] answers in three ways: nil, the kernel has the feature; an error that
// is [ErrNotSupported], it has not; any other error, that could not be found
// out, mostly for lack of privileges. A caller takes its next best way on
// ErrNotSupported only. Versions are never compared, because vendors carry
// features back and leave options out.
//
// A probe tries the thing itself: it loads a BPF program of a few instructions,
// makes a link, and takes both away before it returns. Uprobes are set on a
// memory file that nobody maps, so they trap nowhere; links of many are only
// asked for, on a folder. A program on a tracepoint does nothing for the instant
// that it is there.
package kfeature
