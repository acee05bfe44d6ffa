// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/testutil"
)

func TestOutputPlace(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("old.pb.gz", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("sub", 0o755); err != nil {
		t.Fatal(err)
	}
	const usual = `unfreed-42-\d{8}-\d{6}\.pb\.gz`
	for path, want := range map[string]string{
		"":                            dir + "/" + usual,
		"new.pb.gz":                   dir + `/new\.pb\.gz`,
		"old.pb.gz":                   dir + `/old\.pb\.gz`,
		"sub":                         dir + "/sub/" + usual,
		"sub/":                        dir + "/sub/" + usual,
		filepath.Join(dir, "sub/a.b"): dir + `/sub/a\.b`,
	} {
		o, err := newOutput(path, 42)
		if err != nil {
			t.Errorf("%q: %v", path, err)
		} else if !regexp.MustCompile("^" + want + "$").MatchString(o.path) {
			t.Errorf("%q goes to %q, want %s", path, o.path, want)
		}
	}
	for path, want := range map[string]string{
		"/nonexist/x": `writing "/nonexist/x": no such file or directory (give another path with -o)`,
		"missing/":    `writing into "missing/": file does not exist (give another path with -o)`,
		"/dev/null":   `writing "/dev/null": not a regular file (give another path with -o)`,
	} {
		if _, err := newOutput(path, 42); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
	for _, d := range []string{".", "sub"} {
		list, err := os.ReadDir(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Name() != "old.pb.gz" && e.Name() != "sub" {
				t.Errorf("%s was left behind in %s", e.Name(), d)
			}
		}
	}
}

func TestOutputWrite(t *testing.T) {
	dir := t.TempDir()
	o, err := newOutput(filepath.Join(dir, "a.pb.gz"), 42)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"first", "second"} {
		path, err := o.write([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("read %q, %v, want %q", b, err, content)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v, %v, want one file", list, err)
	}
}

// A disk that is full at the end costs neither the profile nor the report, and is
// told.
func TestAttachFullDisk(t *testing.T) {
	testutil.RequireBPF(t)
	dir := t.TempDir()
	if err := unix.Mount("unfreed-test", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	out := filepath.Join(dir, "out.pb.gz")
	if err := os.WriteFile(out, make([]byte, 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	target := crashTarget(t)
	c := prepare(t, t.TempDir(), "attach", itoa(target.PID()), "-o", out, "-d", "1ms", "--json")
	spares := t.TempDir()
	c.Env = append(os.Environ(), "TMPDIR="+spares)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if code := c.exitCode(); code != exitOutput {
		t.Errorf("exit code %d, want %d", code, exitOutput)
	}
	spare, err := filepath.Glob(filepath.Join(spares, "out-*.pb.gz"))
	if err != nil || len(spare) != 1 {
		t.Fatalf("spare profiles %v, %v, want one", spare, err)
	}
	inUse(t, spare[0], "")
	want := "unfreed: writing " + out + ": no space left on device; the profile is in " + spare[0] + " (move it to a place with room)\n"
	if !strings.HasSuffix(c.said(), want) {
		t.Errorf("stderr %q, want %q at the end", c.said(), want)
	}
	var report struct{ Profile string }
	if err := json.Unmarshal(c.stdout.Bytes(), &report); err != nil || report.Profile != spare[0] {
		t.Errorf("the report names %q, %v, want %q", report.Profile, err, spare[0])
	}
}
