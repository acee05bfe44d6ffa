// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// target is a process that does a number of operations when told to and says how
// long one took: testdata/targets/c/deep.c, infer.py.
type target struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startTarget starts a target and waits for its READY.
func startTarget(ctx context.Context, name string, args ...string) (*target, error) {
	t := &target{cmd: exec.CommandContext(ctx, name, args...)}
	t.cmd.Stderr = os.Stderr
	var err error
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.out = bufio.NewReader(out)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the target: %w", err)
	}
	if _, err := t.answer("READY"); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *target) pid() int { return t.cmd.Process.Pid }

// answer reads lines up to one with the marker and returns what follows it.
func (t *target) answer(marker string) (string, error) {
	for {
		line, err := t.out.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("waiting for the target's %s: %w", marker, err)
		}
		if rest, ok := strings.CutPrefix(line, marker); ok {
			return strings.TrimSpace(rest), nil
		}
	}
}

// measure has the target do n operations and returns the nanoseconds of one.
func (t *target) measure(n int) (float64, error) {
	if _, err := fmt.Fprintln(t.in, n); err != nil {
		return 0, fmt.Errorf("telling the target: %w", err)
	}
	answer, err := t.answer("PAIR ")
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseFloat(answer, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the target's answer: %w", err)
	}
	return ns, nil
}

// close ends the target. How it ends does not matter any more.
func (t *target) close() {
	t.in.Close()
	t.cmd.Process.Kill() //nolint:errcheck // it may have ended with its stdin
	t.cmd.Wait()         //nolint:errcheck // killed
}

// buildDeep compiles the target of pairs, with frame pointers, since the other
// tools need them.
func (b *bench) buildDeep(ctx context.Context) (string, error) {
	path := filepath.Join(b.dir, "deep")
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-g", "-pthread", "-fno-omit-frame-pointer",
		"testdata/targets/c/deep.c", "-o", path)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("compiling the target (run in the repository's root): %w", err)
	}
	return path, nil
}

// errMissing says that a tool is not there, so that the others are measured.
var errMissing = errors.New("not installed")
