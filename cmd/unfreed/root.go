// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// run executes one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// A reader that goes away must not take the profile with it: writes fail
	// with EPIPE instead.
	signal.Ignore(syscall.SIGPIPE)

	root := newRootCmd()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitOK
	}
	var quiet *exitError
	if !errors.As(err, &quiet) || quiet.err != nil {
		fmt.Fprintf(stderr, "unfreed: %v\n", err)
	}
	return exitCode(err)
}

func newRootCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unfreed",
		Short: "Show which code holds the memory of a running Python process",
		Long: `unfreed shows which code holds the memory of a running Python or PyTorch
process. It attaches from outside, with eBPF, and writes pprof profiles of
outstanding memory in which Python and native frames stand in one stack.

Nothing is injected into the process and it is never stopped.`,
		Example: `  sudo unfreed attach 4242                                trace until Ctrl-C
  sudo unfreed attach 4242 --duration 5m -o leak.pb.gz    or for five minutes
  unfreed web leak.pb.gz                                  look at the profile
  sudo unfreed doctor 4242                                why does it not work?`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("unknown command %q (see `unfreed --help`)", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w (see `%s --help`)", err, cmd.CommandPath()))
	})
	cmd.SetVersionTemplate("unfreed {{.Version}}\n")
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(newAttachCmd(), newWebCmd(), newDoctorCmd())
	return cmd
}

// printed is the error of writing to standard output. It is none if the reader
// has gone, as `head` does when it has seen enough.
func printed(err error) error {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("writing the report: %w", err)
}

// version is what the module system and the version control say of this build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, revision, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
		if revision != "" {
			v += "-" + revision + dirty
		}
	}
	return v
}
