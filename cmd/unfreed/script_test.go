// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"unfreed": main})
}

// TestScripts runs the command as its users do: testdata/script, one file a
// subject.
func TestScripts(t *testing.T) {
	testutil.RequireBPF(t)
	simple := testutil.BuildC(t, []string{"testdata/targets/c/simple.c"}, "-fno-builtin")
	crash := testutil.BuildC(t, []string{"testdata/targets/c/crash.c"}, "-fno-builtin")
	nolibc := testutil.BuildC(t, []string{"testdata/targets/c/nolibc.c"}, "-nostdlib", "-static", "-fno-stack-protector")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("SIMPLE", simple)
			e.Setenv("CRASH", crash)
			e.Setenv("NOLIBC", nolibc)
			e.Setenv("PYTHON", testutil.RequireTool(t, "python3"))
			e.Setenv("EXAMPLES", testutil.Path(t, "testdata"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"target":  startTarget,
			"tell":    tellTarget,
			"zombie":  makeZombie,
			"exit":    checkExit,
			"profile": checkProfile,
		},
	})
}

// lineWaiter reads the lines of a target.
type lineWaiter struct {
	ch   chan string
	seen []string
}

func (w *lineWaiter) wait(ts *testscript.TestScript, marker string) {
	for line := range w.ch {
		w.seen = append(w.seen, line)
		if strings.HasPrefix(line, marker) {
			return
		}
	}
	ts.Fatalf("the target ended without %q; it said %q", marker, w.seen)
}

// startTarget starts a program and waits for its marker:
//
//	target VARIABLE MARKER program [args...]
func startTarget(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: target variable marker program [args...]")
	}
	cmd := exec.Command(args[2], args[3:]...)
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w := &lineWaiter{ch: make(chan string, 64)}
	go func() {
		defer close(w.ch)
		var line []byte
		b := make([]byte, 1)
		for {
			if _, err := out.Read(b); err != nil {
				return
			}
			if b[0] == '\n' {
				w.ch <- string(line)
				line = line[:0]
				continue
			}
			line = append(line, b[0])
		}
	}()
	w.wait(ts, args[1])
	pid := strconv.Itoa(cmd.Process.Pid)
	ts.Setenv(args[0], pid)
	scriptTargets[pid] = func(line, marker string) {
		_, err := fmt.Fprintln(in, line)
		ts.Check(err)
		if marker != "" {
			w.wait(ts, marker)
		}
	}
}

// scriptTargets are the running targets by PID: how to tell them something.
var scriptTargets = map[string]func(line, marker string){}

// tellTarget writes a line to a target and waits for a marker:
//
//	tell PID line [marker]
func tellTarget(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: tell pid line [marker]")
	}
	marker := ""
	if len(args) > 2 {
		marker = args[2]
	}
	scriptTargets[args[0]](args[1], marker)
}

// makeZombie leaves a process that has exited and is not reaped:
//
//	zombie VARIABLE
func makeZombie(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command("true")
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Wait() })
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		ts.Check(err)
		if bytes.Contains(b, []byte(") Z ")) {
			break
		}
	}
	ts.Setenv(args[0], strconv.Itoa(cmd.Process.Pid))
}

// checkExit runs a command and compares its exit code:
//
//	exit CODE program [args...]
func checkExit(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("running %q: %v", args[1:], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// checkProfile sums a value of a profile over the samples through a function:
//
//	profile FILE VALUE FUNCTION SUM
func checkProfile(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: profile file value function sum")
	}
	p, err := profile.ParseData([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	index := -1
	for i, st := range p.SampleType {
		if st.Type == args[1] {
			index = i
		}
	}
	if index < 0 {
		ts.Fatalf("no value %q in %v", args[1], p.SampleType)
	}
	var sum int64
	for _, s := range p.Sample {
		if through(s, args[2]) {
			sum += s.Value[index]
		}
	}
	if got := strconv.FormatInt(sum, 10); got != args[3] {
		ts.Fatalf("%s through %s = %s, want %s", args[1], args[2], got, args[3])
	}
}

func through(s *profile.Sample, function string) bool {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil && line.Function.Name == function {
				return true
			}
		}
	}
	return false
}
