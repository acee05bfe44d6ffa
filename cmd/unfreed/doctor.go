// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/unfreed/unfreed/pkg/doctor"
	"github.com/unfreed/unfreed/pkg/proc"
)

type doctorOptions struct {
	pid  int // 0: none
	json bool
}

func newDoctorCmd() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [PID]",
		Short: "Tell what this kernel, these privileges and a process allow",
		Long: `Doctor tries what attach needs and tells what is there, what is missing, why
that matters and what to do about it. With a PID it looks at that process too:
where it allocates, whether Python frames will be seen, where stacks will end.

It sets no probe and changes nothing. The exit code is 0 if attach would work,
otherwise the one that attach would end with.`,
		Example: `  sudo unfreed doctor
  sudo unfreed doctor 4242
  sudo unfreed doctor 4242 --json | jq '.findings[] | select(.state != "ok")'`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			switch len(args) {
			case 0:
				return nil
			case 1:
				if o.pid, err = strconv.Atoi(args[0]); err != nil || o.pid <= 0 {
					return usageError(fmt.Errorf("%q is not a PID (try `pgrep -af %s`)", args[0], args[0]))
				}
				return nil
			}
			return usageError(errors.New("doctor takes one PID at most"))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return doctorRun(ctx, o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON; docs/doctor.md describes it")
	return cmd
}

func doctorRun(ctx context.Context, o doctorOptions, stdout io.Writer) error {
	r, err := doctor.Check(ctx, doctor.Options{Version: version(), PID: o.pid})
	if err != nil {
		return &exitError{exitAborted, errors.New("interrupted")}
	}
	if o.json {
		e := json.NewEncoder(stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		_, color := terminal(stdout)
		_, err = io.WriteString(stdout, doctor.Text(r, doctor.TextOptions{Color: color}))
	}
	if err := printed(err); err != nil {
		return &exitError{exitOutput, err}
	}
	return verdict(r)
}

// verdict is the exit code that attach would end with. The report has said why.
func verdict(r *doctor.Report) error {
	blocked := r.Blocked()
	switch {
	case blocked == nil:
		return nil
	case blocked.Area == doctor.Kernel:
		return &exitError{code: exitUnsupported}
	case blocked.Area == doctor.Privileges, errors.Is(blocked.Err, proc.ErrPermission):
		return &exitError{code: exitPermission}
	}
	return &exitError{code: exitTarget}
}
