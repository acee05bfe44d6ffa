// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/unfreed/unfreed/pkg/report"
	"github.com/unfreed/unfreed/pkg/tracer"
)

const (
	refreshTerminal = time.Second      // a line that is overwritten
	refreshLog      = 10 * time.Second // lines that stay
	progressAfter   = 300 * time.Millisecond
)

// live is the status on stderr: one line that is overwritten on a terminal,
// plain lines elsewhere. Safe for concurrent use.
type live struct {
	w     io.Writer
	isTTY bool
	began time.Time

	mu    sync.Mutex
	shown bool   // a line stands that has to be cleared
	last  string // step that was told
}

func newLive(w io.Writer) *live {
	_, isTTY := fileWidth(w)
	return &live{w: w, isTTY: isTTY, began: time.Now()}
}

// progress tells how the preparation goes, once it takes long enough to wonder.
func (l *live) progress(p tracer.Progress) {
	if time.Since(l.began) < progressAfter {
		return
	}
	text := p.Step
	if p.Total > 0 && l.isTTY {
		text = fmt.Sprintf("%s %d/%d", p.Step, p.Done, p.Total)
	}
	l.step(text)
}

// step shows what is being done.
func (l *live) step(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text == l.last {
		return
	}
	l.last = text
	l.put(text + " ...")
}

// put writes a line; the caller holds the lock.
func (l *live) put(line string) {
	if !l.isTTY {
		fmt.Fprintln(l.w, line)
		return
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", line)
	l.shown = true
}

// clear removes the line that is overwritten.
func (l *live) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.shown = false
	}
}

// follow shows the status until done is closed.
func (l *live) follow(done <-chan struct{}, status func() (report.Status, error)) {
	every := refreshLog
	if l.isTTY {
		every = refreshTerminal
	}
	if l.isTTY {
		l.mu.Lock()
		fmt.Fprintln(l.w, "tracing; Ctrl-C ends and writes the profile")
		l.mu.Unlock()
	} else {
		l.step("tracing")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var allocations int64
	var before time.Duration
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		st, err := status()
		if err != nil {
			continue // the final report tells
		}
		if d := st.Elapsed - before; d > 0 {
			st.AllocsPerSec = float64(st.Allocations-allocations) / d.Seconds()
		}
		allocations, before = st.Allocations, st.Elapsed
		l.mu.Lock()
		width, _ := fileWidth(l.w)
		l.put(st.Line(max(width-1, 0)))
		l.mu.Unlock()
	}
}

// untilSignal returns a context that ends with the first signal that asks for
// it: Ctrl-C, SIGTERM, or the loss of the terminal. A second one does not wait
// for the profile.
func untilSignal(parent context.Context, stderr io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go obey(c, done, cancel, func() {
		// The kernel takes the probes out.
		fmt.Fprintln(stderr, "\nunfreed: aborted; the profile was not written")
		os.Exit(exitAborted)
	})
	return ctx, sync.OnceFunc(func() {
		signal.Stop(c)
		close(done)
		cancel()
	})
}

// obey calls end at the first signal and abort at the second. A lost terminal
// sends SIGHUP twice, by the kernel and by the shell, and nobody asks for haste
// by it: only the first of all signals may be one.
func obey(c <-chan os.Signal, done <-chan struct{}, end, abort func()) {
	for ended := false; ; {
		select {
		case <-done:
			return
		case sig := <-c:
			switch {
			case !ended:
				ended = true
				end()
			case sig != syscall.SIGHUP:
				abort()
				return
			}
		}
	}
}

// fileWidth returns the width of the terminal that w is, and whether it is one.
func fileWidth(w io.Writer) (int, bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80, true
	}
	return width, true
}

// terminal returns the width for a report and whether to use colours.
func terminal(w io.Writer) (width int, color bool) {
	width, isTTY := fileWidth(w)
	_, plain := os.LookupEnv("NO_COLOR")
	return width, isTTY && !plain && os.Getenv("TERM") != "dumb"
}

// shellQuote makes a path safe to paste.
func shellQuote(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,+:@%", r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
