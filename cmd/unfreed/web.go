// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	heap "github.com/unfreed/unfreed/pkg/profile"
)

// flameGraphPath is where the web UI starts.
const flameGraphPath = "/ui/flamegraph"

type webOpts struct {
	port      int
	noBrowser bool
}

func newWebCmd() *cobra.Command {
	var opts webOpts
	cmd := &cobra.Command{
		Use:   "web PROFILE",
		Short: "Look at a profile in the browser",
		Long: `web serves pprof's web interface for a profile, flame graph first, on this
machine's loopback address only, until Ctrl-C.

Everything works without further programs except the Graph view, which needs
graphviz (apt install graphviz).`,
		Example: `  unfreed web leak.pb.gz
  unfreed web --port 8080 --no-browser leak.pb.gz   and from elsewhere:
  ssh -L 8080:127.0.0.1:8080 host                   then open 127.0.0.1:8080`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("web takes one profile, got %d arguments (unfreed web PROFILE)", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return runWeb(ctx, opts, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&opts.port, "port", 0, "`port` to listen on; 0 takes a free one")
	cmd.Flags().BoolVar(&opts.noBrowser, "no-browser", false, "do not open a browser, only print the address")
	return cmd
}

// runWeb serves the profile at path until the context is cancelled.
func runWeb(ctx context.Context, opts webOpts, path string, stdout, stderr io.Writer) error {
	if opts.port < 0 || opts.port > 65535 {
		return usageError(fmt.Errorf("port %d does not exist (ports are 0 to 65535)", opts.port))
	}
	p, err := readProfile(path)
	if err != nil {
		return err
	}
	l, err := listenLoopback(opts.port)
	if err != nil {
		return err
	}
	defer l.Close()
	url := "http://" + l.Addr().String() + flameGraphPath
	fmt.Fprintf(stdout, "Serving %s at %s (Ctrl-C to stop)\n", path, url)
	if hint := tunnelHint(os.Getenv("SSH_CONNECTION"), l.Addr()); hint != "" {
		fmt.Fprintln(stdout, hint)
	}
	warnIncomplete(stderr, p)
	if !opts.noBrowser {
		openBrowser(ctx, url)
	}
	return servePprof(ctx, p, l, stderr)
}

// tunnelHint says how to get there from the machine at which the user sits, if
// that is another: sshd sets SSH_CONNECTION.
func tunnelHint(connection string, addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if connection == "" || !ok {
		return ""
	}
	return fmt.Sprintf("From your own machine: ssh -L %d:127.0.0.1:%d HOST, then open the same address there", tcp.Port, tcp.Port)
}

// warnIncomplete says what pprof shows only to those who ask for the details of
// a view: that the profile's numbers may be wrong.
func warnIncomplete(stderr io.Writer, p *profile.Profile) {
	for _, c := range p.Comments {
		if strings.HasPrefix(c, heap.IncompleteComment) {
			fmt.Fprintf(stderr, "!! %s\n", c)
		}
	}
}

// listenLoopback listens on the loopback address only: a profile tells a lot
// about the program it was made of.
func listenLoopback(port int) (net.Listener, error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	l, err := net.Listen("tcp4", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listening on %s: %w (another program has this port; --port 0 takes a free one)", addr, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("listening on %s: %w (ports below 1024 need root; --port 0 takes a free one)", addr, syscall.EACCES)
	case err != nil:
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return l, nil
}

// openBrowser opens the address in the user's browser where there is one: not
// as root, as which browsers refuse to run or should, and not without a
// desktop. The address has been printed, so an error needs no words.
func openBrowser(ctx context.Context, url string) {
	opener := "xdg-open"
	switch {
	case os.Geteuid() == 0:
		return
	case runtime.GOOS == "darwin":
		opener = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	cmd := exec.CommandContext(ctx, opener, url)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }() // or it stays behind as a zombie
	}
}
