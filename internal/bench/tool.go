// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// tool is something that watches a target.
type tool struct {
	name string
	// start attaches and returns how to detach; nil is no tool at all. That
	// it returns does not mean that all probes are in, see settle.
	start func(ctx context.Context, t *target) (stop func() error, err error)
}

// process is a tool that runs as a program of its own.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr strings.Builder // read after done
	done   chan struct{}   // closed when the program has ended and said all
	err    error           // how it ended; read after done
}

// startProcess starts a tool's program. If marker is not empty it waits for a
// line of stderr that begins with it.
func startProcess(ctx context.Context, marker string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...), done: make(chan struct{})}
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	marked, wanted := make(chan struct{}), marker
	go func() {
		for lines := bufio.NewReader(stderr); ; {
			line, err := lines.ReadString('\n')
			p.stderr.WriteString(line)
			if err != nil {
				break
			}
			if wanted != "" && strings.HasPrefix(line, wanted) {
				close(marked)
				wanted = ""
			}
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if marker == "" {
		return p, nil
	}
	select {
	case <-marked:
		return p, nil
	case <-p.done:
		return nil, p.early()
	}
}

// early is the error of a program that ended by itself.
func (p *process) early() error {
	return fmt.Errorf("%s ended by itself (%v): it said %q", p.cmd.Path, p.cmd.ProcessState, p.stderr.String())
}

// stop interrupts the program, as Ctrl-C does, and waits for it. Tools end with
// statuses of their own then.
func (p *process) stop() error {
	select {
	case <-p.done:
		return p.early()
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return p.err
	}
	return nil
}

// result is what the suites read of unfreed's JSON report, docs/report-json.md.
type result struct {
	Coverage struct {
		Allocations    int64 `json:"allocations"`
		StacksComplete int64 `json:"stacks_complete"`
		EventsLost     []struct {
			Name  string `json:"name"`
			Count int64  `json:"count"`
		} `json:"events_lost"`
	} `json:"coverage"`
	Cost struct {
		Hits           int64 `json:"probe_hits"`
		ProgramNS      int64 `json:"program_ns"`
		OwnRSS         int64 `json:"own_rss_bytes"`
		KernelMapBytes int64 `json:"kernel_map_bytes"`
		StartUpNS      int64 `json:"startup_ns"`
	} `json:"cost"`
}

// startUnfreed attaches unfreed; results of finished runs go to each, if set.
func (b *bench) startUnfreed(ctx context.Context, t *target, each func(*result), flags ...string) (func() error, error) {
	args := append([]string{"attach", strconv.Itoa(t.pid()), "--json",
		"-o", filepath.Join(b.dir, "profile.pb.gz"), "--cache-dir", b.cacheDir()}, flags...)
	p, err := startProcess(ctx, "tracing", b.unfreed, args...)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := p.stop(); err != nil {
			return err
		}
		var r result
		if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
			return fmt.Errorf("reading unfreed's report: %w", err)
		}
		if each != nil {
			each(&r)
		}
		return nil
	}, nil
}

func (b *bench) cacheDir() string { return filepath.Join(b.dir, "cache") }

func (b *bench) unfreedTool(each func(*result), flags ...string) tool {
	name := strings.Join(append([]string{"unfreed"}, flags...), " ")
	return tool{name, func(ctx context.Context, t *target) (func() error, error) {
		return b.startUnfreed(ctx, t, each, flags...)
	}}
}

// programTool is a tool that is started with a PID and stopped with Ctrl-C.
func programTool(name string, find func() ([]string, error), args func(pid string) []string) tool {
	return tool{name, func(ctx context.Context, t *target) (func() error, error) {
		command, err := find()
		if err != nil {
			return nil, err
		}
		command = append(command, args(strconv.Itoa(t.pid()))...)
		p, err := startProcess(ctx, "", command[0], command[1:]...)
		if err != nil {
			return nil, err
		}
		return p.stop, nil
	}}
}
