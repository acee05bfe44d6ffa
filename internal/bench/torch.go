// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// venv is where memray, which must be importable by its target, is installed;
// kept from run to run.
const venv = "bin/bench/venv"

// runTorch measures torch inference under nothing, unfreed, and memray attached
// with native stacks.
func runTorch(ctx context.Context, b *bench) error {
	python, err := b.makeVenv(ctx)
	if err != nil {
		return err
	}
	t, err := startTarget(ctx, python, "internal/bench/infer.py")
	if err != nil {
		return err
	}
	defer t.close()

	var costs, rss, maps []float64
	each := func(r *result) {
		if n := r.Coverage.Allocations; n > 0 {
			costs = append(costs, float64(r.Cost.ProgramNS)/float64(n))
		}
		rss = append(rss, float64(r.Cost.OwnRSS))
		maps = append(maps, float64(r.Cost.KernelMapBytes))
	}
	tools := []tool{
		{name: "nothing"},
		emptyProbes("empty probes, placed", true),
		b.unfreedTool(each),
		b.unfreedTool(nil, "--sample-bytes", "512KiB"),
		memray(python, b.dir),
	}
	n := b.pick(500, 20)
	times, err := b.alternate(ctx, t, tools, func(t *target) (float64, error) {
		return median3(func() (float64, error) { return t.measure(n) })
	}, func(context.Context, tool, bool) error {
		_, err := t.measure(10) // every tool here is in once it says so; warm up
		return err
	})
	if err != nil {
		return err
	}
	b.printf("torch inference: ns an inference, median of %d rounds [range]\n", b.rounds)
	b.table(tools, times, "memray attach --native")
	if len(costs) > 0 {
		b.printf("  unfreed's programs take %.0f ns an allocation, its free included\n", median(costs))
		b.printf("  unfreed takes %.0f MB resident and %.0f MB of kernel maps\n", median(rss)/1e6, median(maps)/1e6)
	}
	return nil
}

// makeVenv makes the virtual environment once and returns its interpreter.
func (b *bench) makeVenv(ctx context.Context) (string, error) {
	dir := venv
	if b.pypiTorch {
		dir += "-pypi"
	}
	python := filepath.Join(dir, "bin/python3")
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err == nil {
		return python, nil
	}
	b.printf("making %s\n", dir)
	install := []string{"-m", "pip", "install", "--quiet", "memray"}
	create := []string{"-m", "venv", "--clear"}
	if b.pypiTorch {
		install = append(install, "torch", "numpy")
	} else {
		create = append(create, "--system-site-packages")
	}
	for _, argv := range [][]string{append([]string{b.python}, append(create, dir)...), append([]string{python}, install...)} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("running %s: %w", cmd, err)
		}
	}
	return python, os.WriteFile(filepath.Join(dir, ".complete"), nil, 0o644)
}

// memray injects itself into the target by a debugger, and leaves when told.
func memray(python, dir string) tool {
	runs := 0
	return tool{"memray attach --native", func(ctx context.Context, t *target) (func() error, error) {
		if _, err := exec.LookPath("gdb"); err != nil {
			return nil, fmt.Errorf("finding gdb, by which memray attaches (install it with .ci/deps.sh bench): %w", errMissing)
		}
		runs++
		out := filepath.Join(dir, fmt.Sprintf("memray-%d.bin", runs))
		pid := strconv.Itoa(t.pid())
		call := func(args ...string) error { return memrayCommand(ctx, t, python, append(args, pid)...) }
		if err := call("attach", "--method", "gdb", "--native", "-f", "-o", out); err != nil {
			return nil, err
		}
		return func() error {
			defer os.Remove(out)
			return call("detach", "--method", "gdb")
		}, nil
	}}
}

// memrayCommand runs a command of memray's and keeps the target at work
// meanwhile: the debugger waits for it to call malloc.
func memrayCommand(ctx context.Context, t *target, python string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, append([]string{"-m", "memray"}, args...)...)
	done := make(chan error, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("running memray %s: %w: %s", args[0], err, out)
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			return err
		default:
			if _, err := t.measure(5); err != nil {
				return err
			}
		}
	}
}
