// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

// The limits of the server. Pages of large profiles take seconds to make, so
// answers have no limit of their own.
const (
	readHeaderTimeout = 10 * time.Second
	shutdownGrace     = 2 * time.Second // for pages under way at Ctrl-C
)

// serveHTTP serves pprof's handlers below /ui/ until the context is cancelled.
func serveHTTP(ctx context.Context, l net.Listener, handlers map[string]http.Handler) error {
	s := &http.Server{
		Handler:           guard(webMux(handlers)),
		ReadHeaderTimeout: readHeaderTimeout,
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		err := s.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close()
		}
		stopped <- err
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// webMux lays the views out as `go tool pprof -http` does, with the flame graph
// first.
func webMux(handlers map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, h := range handlers {
		switch path {
		case "/":
			continue // redirected below
		case "/graph":
			h = needGraphviz(h)
		}
		mux.Handle("/ui"+path, http.StripPrefix("/ui", h))
	}
	toFlameGraph := func(w http.ResponseWriter, r *http.Request) {
		// Not permanently: another profile may be here tomorrow.
		http.Redirect(w, r, flameGraphPath, http.StatusTemporaryRedirect)
	}
	mux.HandleFunc("/{$}", toFlameGraph)
	mux.HandleFunc("/ui/{$}", toFlameGraph)
	return mux
}

// guard keeps other web sites out of the server of a loopback address. A site
// can make its own name resolve to 127.0.0.1 (DNS rebinding) and read what its
// visitor's browser gets from there, so only loopback names are answered; and
// it can send the browser to any address, so what changes settings must come
// from these pages themselves. Nobody may frame them.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopbackHost(r.Host) {
			http.Error(w, "This server answers to 127.0.0.1 and localhost only.", http.StatusForbidden)
			return
		}
		site := r.Header.Get("Sec-Fetch-Site")
		if strings.HasSuffix(r.URL.Path, "config") && site != "" && site != "same-origin" {
			http.Error(w, "Settings are changed from pprof's own pages only.", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store") // the next profile may have the same address
		next.ServeHTTP(w, r)
	})
}

// loopbackHost reports whether a Host header names this machine to itself.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// needGraphviz explains the one view that needs another program.
func needGraphviz(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Looked up each time: it can be installed while this is running.
		if _, err := exec.LookPath("dot"); err == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, graphvizPage)
	})
}

// graphvizPage is shown in place of the graph where graphviz is missing.
const graphvizPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Graphviz is missing</title>
<style>body { font: 16px/1.5 sans-serif; max-width: 36em; margin: 4em auto; padding: 0 1em }</style>
<h1>The graph needs Graphviz</h1>
<p>This view is drawn by the program <code>dot</code>, which is not installed
on this machine. Install it, then reload this page:</p>
<pre>apt install graphviz</pre>
<p>The other views do without:
<a href="./flamegraph">flame graph</a>, <a href="./top">top</a>,
<a href="./peek">peek</a>, <a href="./source">source</a>.</p>
</html>
`
