// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"
)

// servePprof runs pprof's web UI for a profile on a listener until the context
// is cancelled. The driver keeps its configuration in package variables, so a
// process can do this once at a time.
func servePprof(ctx context.Context, p *profile.Profile, l net.Listener, stderr io.Writer) error {
	cleanup, err := settingsFolder()
	if err != nil {
		return err
	}
	defer cleanup()
	err = driver.PProf(&driver.Options{
		// The driver takes its arguments as if from its own command line.
		Flagset: &pprofFlags{
			strings: map[string]string{"http": l.Addr().String(), "symbolize": "none"},
			bools:   map[string]bool{"no_browser": true},
			args:    []string{"profile"},
		},
		Fetch:      fetched{p},
		Sym:        symbolized{},
		UI:         pprofUI{stderr},
		HTTPServer: func(args *driver.HTTPServerArgs) error { return serveHTTP(ctx, l, args.Handlers) },
	})
	if err != nil {
		return fmt.Errorf("serving the profile: %w", err)
	}
	return nil
}

// settingsFolder sees to it that the driver finds a folder for the views that a
// user saves: it refuses to start without, and a service or container may have
// no home. Saved views are gone afterwards then.
func settingsFolder() (cleanup func(), err error) {
	if _, err := os.UserConfigDir(); err == nil {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "unfreed-web-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for settings: %w (set HOME)", err)
	}
	os.Setenv("XDG_CONFIG_HOME", dir)
	return func() {
		os.Unsetenv("XDG_CONFIG_HOME")
		os.RemoveAll(dir)
	}, nil
}

// fetched gives the driver the profile that has been read already.
type fetched struct{ p *profile.Profile }

func (f fetched) Fetch(string, time.Duration, time.Duration) (*profile.Profile, string, error) {
	return f.p, "", nil
}

// symbolized leaves the names in the profile alone. They were found in the
// target itself; the files at those paths here may be others.
type symbolized struct{}

func (symbolized) Symbolize(string, driver.MappingSources, *profile.Profile) error { return nil }

// pprofUI passes the driver's complaints on and keeps its chatter.
type pprofUI struct{ stderr io.Writer }

func (pprofUI) ReadLine(string) (string, error)     { return "", io.EOF }
func (pprofUI) Print(...any)                        {}
func (u pprofUI) PrintErr(args ...any)              { fmt.Fprintln(u.stderr, "pprof:", fmt.Sprint(args...)) }
func (pprofUI) IsTerminal() bool                    { return false }
func (pprofUI) WantBrowser() bool                   { return false }
func (pprofUI) SetAutoComplete(func(string) string) {}

// pprofFlags answers the driver's flags from maps; what is not in them has its
// default.
type pprofFlags struct {
	strings map[string]string
	bools   map[string]bool
	args    []string
}

func (f *pprofFlags) Bool(name string, def bool, _ string) *bool {
	if v, ok := f.bools[name]; ok {
		def = v
	}
	return &def
}

func (f *pprofFlags) String(name, def, _ string) *string {
	if v, ok := f.strings[name]; ok {
		def = v
	}
	return &def
}

func (f *pprofFlags) Int(_ string, def int, _ string) *int             { return &def }
func (f *pprofFlags) Float64(_ string, def float64, _ string) *float64 { return &def }
func (f *pprofFlags) StringList(string, string, string) *[]*string     { return new([]*string) }
func (f *pprofFlags) ExtraUsage() string                               { return "" }
func (f *pprofFlags) AddExtraUsage(string)                             {}
func (f *pprofFlags) Parse(func()) []string                            { return f.args }
