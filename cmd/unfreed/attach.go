// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/proc"
	"github.com/unfreed/unfreed/pkg/profile"
	"github.com/unfreed/unfreed/pkg/report"
	"github.com/unfreed/unfreed/pkg/tracer"
	"github.com/unfreed/unfreed/pkg/unwind"
)

// attachOptions are the flags of attach.
type attachOptions struct {
	pid      int
	duration time.Duration
	output   string
	minAge   time.Duration
	sample   int64
	top      int
	json     bool
	view     alloc.View
	noCache  bool
	cacheDir string
	maxLive  int
	maxSites int
	mode     string
}

// cacheBytes bounds the unwind tables on disk: those of a torch process with
// the CUDA libraries take about 100 MB.
const cacheBytes = 1 << 30

func newAttachCmd() *cobra.Command {
	var o attachOptions
	cmd := &cobra.Command{
		Use:   "attach PID",
		Short: "Trace the allocations of a running process and write a profile",
		Long: `Attach follows every allocation and free of a running process, from outside,
until Ctrl-C, --duration or the process's end. Then it reports which code
holds the memory that was allocated meanwhile and is still outstanding, and
writes a pprof profile of it.

Numbers are exact to the byte unless --sample-bytes asks for estimates. What
was missed is stated with the result.`,
		Example: `  sudo unfreed attach 4242
  sudo unfreed attach 4242 --duration 5m -o leak.pb.gz
  sudo unfreed attach 4242 --min-age 1m        leave out what is young
  sudo unfreed attach 4242 --sample-bytes 512KiB
  sudo unfreed attach 4242 --duration 30s --json | jq '.sites[0]'`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) != 1 {
				return usageError(errors.New("attach takes one PID (try `pgrep -af python`)"))
			}
			if o.pid, err = strconv.Atoi(args[0]); err != nil || o.pid <= 0 {
				return usageError(fmt.Errorf("%q is not a PID (try `pgrep -af python`)", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return attachRun(cmd.Context(), &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.VarP((*duration)(&o.duration), "duration", "d", "end after this time (default: at Ctrl-C)")
	f.StringVarP(&o.output, "output", "o", "", "profile to write, or a folder for it (default: unfreed-PID-TIME.pb.gz)")
	f.Var((*duration)(&o.minAge), "min-age", "report only allocations at least this old")
	o.sample = 1
	f.Var((*byteSize)(&o.sample), "sample-bytes", "mean sampling interval, such as 512KiB; 1 takes every allocation")
	f.IntVar(&o.top, "top", 10, "sites to show in the report")
	f.BoolVar(&o.json, "json", false, "print the report as JSON on stdout")
	f.BoolVar(&o.view.KeepInterpreter, "interpreter-frames", false, "keep CPython's own C functions between the Python frames")
	f.BoolVar(&o.view.DropNative, "no-native", false, "keep Python frames only, and do not unwind native ones")
	f.BoolVar(&o.view.DropPython, "no-python", false, "keep native frames only")
	f.IntVar(&o.maxLive, "max-live", bpfobj.DefaultMaxLive, "outstanding allocations the kernel holds at most")
	f.IntVar(&o.maxSites, "max-stacks", bpfobj.DefaultMaxSites, "different stacks the kernel holds at most")
	f.StringVar(&o.cacheDir, "cache-dir", "", "where unwind tables are kept (default: /var/cache/unfreed)")
	f.BoolVar(&o.noCache, "no-cache", false, "keep no unwind tables")
	f.StringVar(&o.mode, "links", "auto", "how to probe: auto, session, multi or perf")
	return cmd
}

func (o *attachOptions) validate() error {
	switch {
	case o.view.DropNative && o.view.DropPython:
		return usageError(errors.New("--no-native and --no-python leave no frames: give one of them"))
	case o.output == "-":
		return usageError(errors.New("a profile is not written to standard output: give a path with -o (--json prints a report there)"))
	case o.duration < 0:
		return usageError(errors.New("--duration must not be negative"))
	case o.minAge < 0:
		return usageError(errors.New("--min-age must not be negative"))
	case o.top < 1:
		return usageError(errors.New("--top must be at least 1"))
	case o.maxLive < 1 || o.maxSites < 1:
		return usageError(errors.New("--max-live and --max-stacks must be at least 1"))
	}
	return nil
}

func (o *attachOptions) modes() ([]bpfobj.Mode, error) {
	switch o.mode {
	case "auto":
		return nil, nil
	case "session":
		return []bpfobj.Mode{bpfobj.ModeSession}, nil
	case "multi":
		return []bpfobj.Mode{bpfobj.ModeMulti}, nil
	case "perf":
		return []bpfobj.Mode{bpfobj.ModePerf}, nil
	}
	return nil, usageError(fmt.Errorf("--links %q is none of auto, session, multi, perf", o.mode))
}

// attachRun is the command: prepare, trace, report.
func attachRun(ctx context.Context, o *attachOptions, stdout, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	modes, err := o.modes()
	if err != nil {
		return err
	}
	p, err := proc.Open(o.pid)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := checkTarget(p); err != nil {
		return err
	}
	out, err := newOutput(o.output, o.pid)
	if err != nil {
		return &exitError{exitOutput, err}
	}

	ctx, stop := untilSignal(ctx, stderr)
	defer stop()
	ui := newLive(stderr)
	cache := openCache(o, stderr)
	defer cache.Close()
	p, s, err := startTracing(ctx, p, tracer.Options{
		SampleBytes: o.sample, NoNative: o.view.DropNative, NoPython: o.view.DropPython,
		MaxLive: o.maxLive, MaxSites: o.maxSites, Modes: modes,
		Tables: cache, Progress: ui.progress,
	})
	ui.clear()
	if err != nil {
		defer p.Close()
		return startError(ctx, p, err)
	}
	defer p.Close()
	defer s.Close()

	end := trace(ctx, s, o, ui)
	ui.step("writing the profile")
	snap, err := s.Finish(end, o.minAge)
	ui.clear()
	if err != nil {
		return err
	}
	snap.Version = version()
	var b bytes.Buffer
	if err := profile.Write(&b, snap, profile.Heap, o.view); err != nil {
		return err
	}
	path, err := out.write(b.Bytes())
	if path != "" {
		if showErr := show(o, snap, path, stdout); err == nil {
			err = showErr
		}
	}
	if err != nil {
		return &exitError{exitOutput, err}
	}
	return nil
}

// startError says why tracing has not begun.
func startError(ctx context.Context, p *proc.Process, err error) error {
	switch {
	case ctx.Err() != nil:
		return &exitError{exitAborted, errors.New("interrupted before tracing began; there is no profile")}
	case errors.Is(err, proc.ErrExited), !p.Alive():
		// Whatever failed, it failed for this.
		return &exitError{exitTarget, fmt.Errorf("process %d ended before tracing began; there is no profile", p.PID())}
	}
	return err
}

// maxExecs is how often a process may replace its program while attach prepares:
// shims and wrappers do it once or twice.
const maxExecs = 8

// startTracing attaches to p, or to what it has become: a process that replaces
// its program meanwhile is opened anew. The caller closes the process returned,
// which is never nil.
func startTracing(ctx context.Context, p *proc.Process, o tracer.Options) (*proc.Process, *tracer.Session, error) {
	for try := 0; ; try++ {
		s, err := tracer.Start(ctx, p, o)
		if err == nil || try == maxExecs || !(errors.Is(err, tracer.ErrReplaced) || errors.Is(err, proc.ErrExited)) {
			return p, s, err
		}
		again, openErr := proc.OpenStarted(p.PID(), p.StartTicks())
		if openErr != nil {
			return p, nil, err // it has really exited
		}
		p.Close()
		p = again
	}
}

// checkTarget refuses what cannot be traced, before anything is prepared.
func checkTarget(p *proc.Process) error {
	if p.PID() == os.Getpid() {
		return usageError(errors.New("unfreed cannot trace itself"))
	}
	return tracer.CheckTarget(p)
}

// trace waits for the end, showing how things stand.
func trace(ctx context.Context, s *tracer.Session, o *attachOptions, ui *live) tracer.End {
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	done := make(chan struct{})
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		ui.follow(done, func() (report.Status, error) {
			st, err := s.Status()
			return statusLine(st, o), err
		})
	}()
	end := s.Wait(ctx)
	close(done)
	<-shown
	return end
}

func statusLine(st tracer.Status, o *attachOptions) report.Status {
	var lost int64
	for _, c := range st.Lost {
		lost += c.Count
	}
	return report.Status{
		Elapsed: st.Elapsed, InUseBytes: st.Bytes, InUseObjects: st.Objects, Estimated: o.sample > 1,
		Allocations: st.Allocations, CoreShare: st.CostShare, Lost: lost, StacksPartial: st.Partial,
	}
}

// openCache opens the cache of unwind tables. Without one everything works,
// only slower, so its failure is a remark.
func openCache(o *attachOptions, stderr io.Writer) *unwind.Cache {
	if o.noCache {
		return nil
	}
	dir := o.cacheDir
	if dir == "" {
		var err error
		if dir, err = unwind.DefaultCacheDir(); err != nil {
			fmt.Fprintf(stderr, "unfreed: unwind tables are not kept: %v\n", err)
			return nil
		}
	}
	c, err := unwind.OpenCache(dir, cacheBytes)
	if err != nil {
		fmt.Fprintf(stderr, "unfreed: unwind tables are not kept: %v\n", err)
		return nil
	}
	return c
}

// show prints the report.
func show(o *attachOptions, snap *alloc.Snapshot, path string, stdout io.Writer) error {
	if o.json {
		b, err := report.JSON(snap, report.JSONOptions{View: o.view, Profile: path})
		if err != nil {
			return err
		}
		_, err = stdout.Write(b)
		return printed(err)
	}
	width, color := terminal(stdout)
	_, err := io.WriteString(stdout, report.Text(snap, report.TextOptions{
		Width: width, Color: color, Top: o.top, View: o.view,
		Profile: path, Open: "unfreed web " + shellQuote(relative(path)),
	}))
	return printed(err)
}

// relative shortens a path that lies under the working directory.
func relative(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(wd, path); err == nil && len(rel) < len(path) {
		return rel
	}
	return path
}
