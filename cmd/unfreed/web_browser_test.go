// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestWebBrowser looks at the flame graph in a real browser: what matters is
// drawn by JavaScript.
func TestWebBrowser(t *testing.T) {
	chromium := testutil.RequireTool(t, "chromium")
	url := startWeb(t, writeProfile(t))

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, // tests run as root
		chromedp.DisableGPU,
		chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.WindowSize(1200, 600),
	)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()

	do(t, ctx, chromedp.Navigate(strings.TrimSuffix(url, flameGraphPath))) // and follow the redirect
	do(t, ctx, chromedp.WaitVisible(chromedp.CSS("#stack-chart .boxbg")))
	boxes := do(t, ctx, chromedp.Evaluate[[]string](
		`Array.from(document.querySelectorAll("#stack-chart .boxtext")).map(e => e.textContent)`))
	title := do(t, ctx, chromedp.Title())
	screenshot := do(t, ctx, chromedp.FullScreenshot(100))

	file := filepath.Join(t.ArtifactDir(), "flamegraph.png")
	if err := os.WriteFile(file, screenshot, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("screenshot: %s (kept with -artifacts)", file)

	if !strings.HasPrefix(title, "python3.11 ") {
		t.Errorf("title %q, want the executable's name", title)
	}
	shown := strings.Join(boxes, "\n")
	for _, want := range []string{"Server.handle", "Cache.put", "keep_forever", "_leak.so+0x1189", "malloc", "<module>"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the flame graph has no box %q:\n%s", want, shown)
		}
	}
}

// do runs one action in the browser.
func do[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	x, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
