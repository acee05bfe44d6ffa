// SPDX-License-Identifier: Apache-2.0

// Command bench measures what unfreed costs a target, beside other tools doing
// the same job in the same run: the tools take turns on one process, round by
// round, so that a change of the machine's speed meets all of them. It prints
// medians and ratios; absolute times mean little from one machine to the next,
// since the price of a trap differs by factors.
//
//	go run ./internal/bench [-only pair,torch,start,loss] [-rounds N] [-quick]
//
// It needs root, ./unfreed (make build), and for the comparisons what
// .ci/deps.sh bench installs; a tool that is missing is named and left out.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	only      string
	rounds    int
	quick     bool
	unfreed   string
	python    string
	pypiTorch bool
	loss      time.Duration
}

// suite is one benchmark.
type suite struct {
	name string
	run  func(context.Context, *bench) error
}

var suites = []suite{
	{"pair", runPairs},
	{"torch", runTorch},
	{"start", runStart},
	{"loss", runLoss},
}

// bench is what the suites share.
type bench struct {
	options
	out io.Writer
	dir string // of this run, removed at its end
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	b := &bench{out: out}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&b.only, "only", "pair,torch,start,loss", "the benchmarks to run")
	f.IntVar(&b.rounds, "rounds", 5, "how often each tool has its turn")
	f.BoolVar(&b.quick, "quick", false, "few operations, to see that it works")
	f.StringVar(&b.unfreed, "unfreed", "./unfreed", "the program under test")
	f.StringVar(&b.python, "python", "/usr/bin/python3", "the interpreter that has torch")
	f.BoolVar(&b.pypiTorch, "pypi-torch", false, "install PyPI's torch and measure that (gigabytes)")
	f.DurationVar(&b.loss, "loss", time.Minute, "how long two threads allocate at full rate")
	if err := f.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("attaching needs root (run sudo make bench)")
	}
	if _, err := os.Stat(b.unfreed); err != nil {
		return fmt.Errorf("finding the program under test (run make build): %w", err)
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "unfreed-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)

	b.describeMachine()
	for _, s := range suites {
		if !strings.Contains(","+b.only+",", ","+s.name+",") {
			continue
		}
		b.printf("\n== %s\n", s.name)
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("running %s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.out, format, args...) }

// pick returns full, or less of it for a quick run.
func (b *bench) pick(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// describeMachine prints what the numbers depend on most.
func (b *bench) describeMachine() {
	var uts syscall.Utsname
	release := "?"
	if syscall.Uname(&uts) == nil {
		release = ""
		for _, c := range uts.Release {
			if c == 0 {
				break
			}
			release += string(rune(c))
		}
	}
	cpu := "?"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	b.printf("Linux %s, %d CPUs, %s, %s\n", release, runtime.NumCPU(), cpu, runtime.GOARCH)
}
