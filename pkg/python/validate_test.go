// SPDX-License-Identifier: Apache-2.0

package python

import (
	"errors"
	"testing"

	"github.com/unfreed/unfreed/pkg/testutil"
)

// TestValidate checks that a layout with any one field wrong is refused in a
// real process, and that the right one never is.
func TestValidate(t *testing.T) {
	spoils := map[string]func(l *Layout){
		"InterpretersHead":  func(l *Layout) { l.InterpretersHead += 16 },
		"InterpThreadsHead": func(l *Layout) { l.InterpThreadsHead -= 8 },
		"ThreadNext":        func(l *Layout) { l.ThreadNext = l.ThreadInterp },
		"ThreadPrev":        func(l *Layout) { l.ThreadPrev = l.ThreadInterp },
		"ThreadInterp":      func(l *Layout) { l.ThreadInterp += 8 },
		"ThreadID":          func(l *Layout) { l.ThreadID -= 8 },
		"ThreadFrame":       func(l *Layout) { l.ThreadFrame = l.ThreadID },
		"FrameCode":         func(l *Layout) { l.FrameCode = l.FramePrev },
		"FramePrev":         func(l *Layout) { l.FramePrev = l.FrameCode },
		"CodeFilename":      func(l *Layout) { l.CodeFilename += 8 },
		"CodeQualname":      func(l *Layout) { l.CodeQualname += 8 },
		"CodeFirstLine":     func(l *Layout) { l.CodeFirstLine += 4 },
	}
	for _, py := range testutil.Pythons(t) {
		t.Run(py.String(), func(t *testing.T) {
			target := py.Start(t, "-c", "def f():\n print('READY', flush=True); input()\nf()")
			target.WaitLine("READY")
			p := openProcess(t, target.PID())
			r, err := find(t, p)
			if err != nil {
				t.Fatal(err)
			}
			maps, err := p.Maps()
			if err != nil {
				t.Fatal(err)
			}
			img := openImage(t, r.Path)
			img.bias = r.RuntimeAddr - img.symbols[symRuntime].Value
			if err := img.validate(p, r, maps); err != nil {
				t.Errorf("the right layout was refused: %v", err)
			}
			for name, spoil := range spoils {
				wrong := *r
				spoil(&wrong.Layout)
				var layout *LayoutError
				err := img.validate(p, &wrong, maps)
				if !errors.As(err, &layout) && !errors.Is(err, ErrNotStarted) {
					t.Errorf("%s: error = %v, want a LayoutError", name, err)
				}
			}
		})
	}
}

func TestFindNotStarted(t *testing.T) {
	r := &Runtime{Layout: layouts[12], RuntimeAddr: 0x1000}
	mem := memory{0x1000: make([]byte, 64)}
	threads, err := r.Threads(mem)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkThreads(mem, threads, nil, 0); !errors.Is(err, ErrNotStarted) {
		t.Errorf("error = %v, want ErrNotStarted", err)
	}
	unbound := []Thread{{Address: 0x2000}}
	if err := checkThreads(mem, unbound, nil, 0); !errors.Is(err, ErrNotStarted) {
		t.Errorf("a thread state not bound to a thread yet: error = %v, want ErrNotStarted", err)
	}
}
