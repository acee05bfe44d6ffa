// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/unfreed/unfreed/pkg/alloc"
	heap "github.com/unfreed/unfreed/pkg/profile"
)

// writeProfile writes a small profile with Python and native frames.
func writeProfile(t *testing.T) string {
	t.Helper()
	ext := &alloc.Mapping{Start: 0x1000, End: 0x9000, Offset: 0x1000, File: "/srv/app/_leak.so", BuildID: "bb02"}
	handle := alloc.Frame{Function: "Server.handle", File: "/srv/app/serve.py", Line: 210, Language: alloc.Python}
	main := alloc.Frame{Function: "<module>", File: "/srv/app/main.py", Line: 12, Language: alloc.Python}
	s := &alloc.Snapshot{
		Target: alloc.Target{PID: 4242, Command: []string{"python3", "main.py"}, Exe: "/usr/bin/python3.11"},
		Start:  time.Unix(1700000000, 0), Duration: time.Minute, Ended: "interrupted", SampleBytes: 1,
		Sites: []alloc.Site{
			{Function: "malloc", InUseBytes: 64 << 20, InUseObjects: 9, AllocBytes: 64 << 20, AllocObjects: 9, Stack: []alloc.Frame{
				{Address: 0x1189, Mapping: ext}, {Function: "keep_forever", Address: 0x1200, Mapping: ext},
				{Function: "Cache.put", File: "/srv/app/cache.py", Line: 42, Language: alloc.Python}, handle, main,
			}},
			{Function: "calloc", InUseBytes: 16 << 20, InUseObjects: 2, AllocBytes: 16 << 20, AllocObjects: 2, Stack: []alloc.Frame{
				{Function: "Session.<lambda>", File: "/srv/app/session.py", Line: 7, Language: alloc.Python}, handle, main,
			}},
		},
	}
	var buf bytes.Buffer
	if err := heap.Write(&buf, s, heap.Heap, alloc.View{}); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "heap.pb.gz", buf.String())
}

// TestWebIncomplete checks that lost events are told before anybody looks.
func TestWebIncomplete(t *testing.T) {
	var stderr bytes.Buffer
	warnIncomplete(&stderr, &profile.Profile{Comments: []string{"# all well"}})
	if stderr.Len() > 0 {
		t.Errorf("of a complete profile it says %q", stderr.String())
	}
	s := &alloc.Snapshot{Coverage: alloc.Coverage{EventsLost: []alloc.Cause{{Name: "live_full", Count: 12}}}}
	p, err := heap.Build(s, heap.Heap, alloc.View{})
	if err != nil {
		t.Fatal(err)
	}
	warnIncomplete(&stderr, p)
	if got, want := stderr.String(), "!! INCOMPLETE: numbers may be wrong: 12 live_full\n"; got != want {
		t.Errorf("of an incomplete profile it says %q, want %q", got, want)
	}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startWeb runs the command on a free port and returns its address.
func startWeb(t *testing.T, path string) (url string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SSH_CONNECTION", "") // nobody reads a second line
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		defer w.Close()
		done <- runWeb(ctx, webOpts{noBrowser: true}, path, w, io.Discard)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("web ended with %v, want none", err)
		}
		if _, err := net.DialTimeout("tcp", strings.TrimPrefix(hostOf(url), "http://"), time.Second); err == nil {
			t.Errorf("%s still answers after the command has ended", url)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the address: %v, %v", err, <-done)
	}
	m := regexp.MustCompile(`^Serving .* at (http://127\.0\.0\.1:\d+/ui/flamegraph) \(Ctrl-C to stop\)\n$`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("printed %q, want the address of the flame graph", line)
	}
	return m[1]
}

// hostOf is the scheme and host of an address.
func hostOf(url string) string { return strings.TrimSuffix(url, flameGraphPath) }

// get requests a page, without following redirects.
func get(t *testing.T, url string, header map[string]string) (status int, location, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	req.Host = header["Host"]
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location"), string(b)
}

func TestWebPages(t *testing.T) {
	url := startWeb(t, writeProfile(t))
	base := hostOf(url)
	t.Setenv("PATH", t.TempDir()) // no graphviz

	tests := []struct {
		path             string
		status           int
		location, within string
	}{
		{"/ui/flamegraph", 200, "", `"Cache.put"`},
		{"/ui/flamegraph", 200, "", `"_leak.so+0x1189"`},
		{"/ui/flamegraph", 200, "", "inuse_space"},
		{"/ui/top", 200, "", "Cache.put"},
		{"/ui/top?si=alloc_objects", 200, "", "Cache.put"},
		{"/ui/peek?f=put", 200, "", "Server.handle"},
		{"/ui/graph", 501, "", "apt install graphviz"},
		{"/ui/download", 200, "", "\x1f\x8b"},
		{"/", 307, "/ui/flamegraph", ""},
		{"/ui/", 307, "/ui/flamegraph", ""},
		{"/ui", 307, "/ui/", ""},
		{"/ui/nothing", 404, "", ""},
		{"/favicon.ico", 404, "", ""},
	}
	for _, tt := range tests {
		status, location, body := get(t, base+tt.path, nil)
		if status != tt.status || location != tt.location || !strings.Contains(body, tt.within) {
			t.Errorf("%s: status %d to %q, want %d to %q and %q in:\n%.2000s",
				tt.path, status, location, tt.status, tt.location, tt.within, body)
		}
	}
}

func TestWebGuard(t *testing.T) {
	url := startWeb(t, writeProfile(t))
	port := url[strings.LastIndex(hostOf(url), ":")+1 : len(hostOf(url))]
	for host, want := range map[string]int{
		"127.0.0.1:" + port:              200,
		"localhost:" + port:              200,
		"LOCALHOST":                      200,
		"[::1]:" + port:                  200,
		"127.0.0.2":                      200,
		"evil.example":                   403,
		"evil.example:" + port:           403,
		"127.0.0.1.evil.example":         403,
		"localhost.evil.example":         403,
		"192.168.0.1:" + port:            403,
		"evil.example@127.0.0.1:" + port: 403,
	} {
		if status, _, _ := get(t, url, map[string]string{"Host": host}); status != want {
			t.Errorf("Host %q: status %d, want %d", host, status, want)
		}
	}
	save := hostOf(url) + "/ui/saveconfig?config=x&f=put"
	for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "none": 403, "same-origin": 200, "": 200} {
		if status, _, body := get(t, save, map[string]string{"Sec-Fetch-Site": site}); status != want {
			t.Errorf("saving settings from a %q page: status %d, want %d: %s", site, status, want, body)
		}
	}
}

func TestWebErrors(t *testing.T) {
	good := writeProfile(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := l.Addr().(*net.TCPAddr).Port
	packed, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name string
		path string
		port int
		is   error
		says string
	}{
		{"no such file", "/nonexistent/x.pb.gz", 0, os.ErrNotExist, "(`unfreed attach PID -o FILE` writes a profile)"},
		{"a folder", t.TempDir(), 0, nil, "is a directory (name the profile in it)"},
		{"empty", writeFile(t, "x", ""), 0, errNotProfile, "(unfreed attach writes profiles"},
		{"text", writeFile(t, "x", "hello\n"), 0, errNotProfile, "not a pprof profile"},
		{"a protobuf of another kind", writeFile(t, "x", "\x32\x00"), 0, errNotProfile, "no sample types"},
		{"gzip only in name", writeFile(t, "x", "\x1f\x8b rest"), 0, errNotProfile, "decompressing"},
		{"cut short", writeFile(t, "x", string(packed[:len(packed)/2])), 0, io.ErrUnexpectedEOF, "cut short"},
		{"port in use", good, used, syscall.EADDRINUSE, "(another program has this port; --port 0 takes a free one)"},
		{"no such port", good, 65536, nil, "port 65536 does not exist"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := runWeb(t.Context(), webOpts{port: tt.port, noBrowser: true}, tt.path, io.Discard, io.Discard)
			if err == nil {
				t.Fatal("no error")
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v, want it to be %v", err, tt.is)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q in it", err, tt.says)
			}
		})
	}
}

func TestTunnelHint(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	if got := tunnelHint("", addr); got != "" {
		t.Errorf("without SSH: %q", got)
	}
	if got, want := tunnelHint("192.0.2.1 50000 192.0.2.2 22", addr), "ssh -L 8080:127.0.0.1:8080 HOST"; !strings.Contains(got, want) {
		t.Errorf("over SSH: %q, want %q in it", got, want)
	}
}

func TestWebArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}} {
		cmd := newWebCmd()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "(unfreed web PROFILE)") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestWebWithoutHome runs where there is no place for settings.
func TestWebWithoutHome(t *testing.T) {
	url := startWeb(t, writeProfile(t))
	if status, _, _ := get(t, url, nil); status != 200 {
		t.Errorf("status %d", status)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	cleanup, err := settingsFolder()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	cleanup()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%q is left behind: %v", dir, err)
	}
}

func FuzzReadProfile(f *testing.F) {
	var buf bytes.Buffer
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "inuse_space", Unit: "bytes"}}}
	if err := p.Write(&buf); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte("\x1f\x8b"))
	f.Add([]byte("heap profile: 1: 2 [3: 4] @ heap/5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := readProfile(path); err == nil {
			_ = fmt.Sprint(p)
		}
	})
}
