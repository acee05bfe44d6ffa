// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"github.com/unfreed/unfreed/pkg/alloc"
)

var (
	exeMap   = &alloc.Mapping{Start: 0x400000, End: 0x800000, File: "/usr/bin/python3.11", BuildID: "aa01"}
	extMap   = &alloc.Mapping{Start: 0x7f0000001000, End: 0x7f0000003000, Offset: 0x1000, File: "/srv/app/_leak.cpython-311-x86_64-linux-gnu.so", BuildID: "bb02"}
	torchMap = &alloc.Mapping{Start: 0x7f2000000000, End: 0x7f2010000000, File: "/srv/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", BuildID: "cc03"}
	libcMap  = &alloc.Mapping{Start: 0x7f1000000000, End: 0x7f1000100000, Offset: 0x28000, File: "/lib/x86_64-linux-gnu/libc.so.6", BuildID: "dd04"}
)

func py(name, file string, line int) alloc.Frame {
	return alloc.Frame{Function: name, File: file, Line: line, StartLine: line - 3, Language: alloc.Python}
}

func nat(name string, m *alloc.Mapping) alloc.Frame {
	return alloc.Frame{Function: name, Address: m.Start + 0x189, Mapping: m}
}

func interp(name string) alloc.Frame {
	f := nat(name, exeMap)
	f.Interpreter = true
	return f
}

// quiet is an observation of a service in which nothing went wrong.
func quiet() *alloc.Snapshot {
	handler := py("Server.handle", "/srv/app/very/deep/tree/of/packages/serve.py", 210)
	main := py("<module>", "/srv/app/main.py", 12)
	start := nat("__libc_start_main", libcMap)
	return &alloc.Snapshot{
		Target: alloc.Target{
			PID: 4242, Command: []string{"python3", "-m", "app.main", "--workers", "4"},
			Exe: "/usr/bin/python3.11", Python: "3.11.2",
		},
		Start:       time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC),
		Duration:    5*time.Minute + 2*time.Second,
		Ended:       "interrupted",
		SampleBytes: 1,
		Version:     "0.1.0",
		Sites: []alloc.Site{
			{ID: 1, Function: "malloc", InUseBytes: 8 << 20, InUseObjects: 1024, AllocBytes: 9 << 20, AllocObjects: 1152,
				OldestAge: 298 * time.Second, NewestAge: time.Second, Stack: []alloc.Frame{
					{Address: 0x7f0000001189, Mapping: extMap}, interp("cfunction_call"), interp("_PyEval_EvalFrameDefault"),
					py("Cache.put", "/srv/app/cache.py", 42), handler, main, interp("Py_RunMain"), start,
				}},
			{ID: 2, Function: "malloc", InUseBytes: 1 << 20, InUseObjects: 128, AllocBytes: 1 << 20, AllocObjects: 128,
				OldestAge: 250 * time.Second, NewestAge: 2 * time.Second, Stack: []alloc.Frame{ // the same line by another way
					{Address: 0x7f0000001189, Mapping: extMap}, interp("cfunction_call"), interp("_PyEval_EvalFrameDefault"),
					py("Cache.put", "/srv/app/cache.py", 42), main, interp("Py_RunMain"), start,
				}},
			{ID: 3, Function: "posix_memalign", InUseBytes: 2<<20 + 512, InUseObjects: 80, AllocBytes: 3 << 30, AllocObjects: 99999,
				OldestAge: 301 * time.Second, NewestAge: 12 * time.Second, Stack: []alloc.Frame{
					nat("c10::alloc_cpu(unsigned long)", torchMap),
					nat("at::native::empty_cpu(c10::ArrayRef<long>, std::optional<c10::ScalarType>, std::optional<c10::Layout>)", torchMap),
					interp("method_vectorcall"),
					py("Linear.forward", "/srv/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 134),
					handler, main, start,
				}},
			{ID: 4, Function: "mmap", Kind: alloc.KindMmap, InUseBytes: 1 << 20, InUseObjects: 1, AllocBytes: 1 << 20, AllocObjects: 1,
				OldestAge: 3 * time.Second, NewestAge: 3 * time.Second, Stack: []alloc.Frame{
					interp("_PyObject_Malloc"), interp("list_append"), py("Router.add", "/srv/app/router.py", 7), main, start,
				}},
			{ID: 5, Function: "realloc", InUseBytes: 4096, InUseObjects: 3, AllocBytes: 4096, AllocObjects: 3,
				OldestAge: 100 * time.Millisecond, NewestAge: 100 * time.Millisecond, Stack: []alloc.Frame{
					nat("void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int&&)", torchMap),
					nat("at::parallel_worker", torchMap), nat("start_thread", libcMap),
				}},
			{ID: 6, Function: "calloc", InUseBytes: 320, InUseObjects: 1, OldestAge: 10 * time.Second,
				Stack: []alloc.Frame{nat("_dl_allocate_tls", libcMap), nat("start_thread", libcMap)}},
			{ID: 7, Function: "malloc", InUseBytes: 16, InUseObjects: 1, OldestAge: 10 * time.Second},
			{ID: 8, Function: "malloc", AllocBytes: 1 << 30, AllocObjects: 1 << 20, Stack: []alloc.Frame{main}},
		},
		Before: alloc.Before{RSS: 210<<20 + 300<<10, RSSAtEnd: 231 << 20, FreesUnmatched: 1234, FreedBytes: 10 << 20},
		Coverage: alloc.Coverage{
			Allocations: 1_234_567, Frees: 1_230_000, StacksComplete: 1_234_567, FreesUnmatched: 1234,
			Unsymbolized: 12, Frames: 4321,
		},
		Cost: alloc.Cost{
			Hits: 3_700_000, ProgramTime: 6 * time.Second, TrapTime: 3 * time.Second,
			OwnRSS: 45 << 20, KernelMapBytes: 120 << 20, StartUp: 840 * time.Millisecond,
		},
	}
}

// loud is one in which everything did.
func loud() *alloc.Snapshot {
	s := quiet()
	s.Target.Command = []string{"python3", "evil\x1b[31m\nname", "実行", "\u202etxt"}
	s.Target.Python = "3.15.0a2"
	s.Target.PythonOff = "CPython 3.15 is newer than this version of unfreed, which knows 3.9 to 3.14"
	s.Ended = "target exited (signal 9)"
	s.SampleBytes = 512 << 10
	s.MinAge = time.Minute
	s.Coverage = alloc.Coverage{
		Allocations: 99, Frees: 1, StacksComplete: 99_990, Frames: 3, FailedCalls: 2,
		StacksPartial: []alloc.Cause{
			{Name: "too_deep", Detail: "more than 256 native frames", Count: 3},
			{Name: "unknown_mapping", Detail: "code in a library that was loaded after attach, before its unwind rows were", Count: 7},
		},
		EventsLost: []alloc.Cause{
			{Name: "live_full", Detail: "allocations not recorded since the live map was full (raise --max-live)", Count: 12_345},
			{Name: "ring_full", Detail: "", Count: 1},
		},
		Notes: []string{"the target forked 2 children, which are not traced [trace them by their own PIDs]"},
	}
	for i := range s.Sites {
		f := &s.Sites[i]
		var stack []alloc.Frame
		for _, x := range f.Stack {
			if x.Language == alloc.Native {
				stack = append(stack, x)
			}
		}
		f.Stack = stack
	}
	return s
}

// training is one of a loop whose library has no symbols: one Python line, and
// five places below it.
func training() *alloc.Snapshot {
	s := empty()
	s.Target.Command, s.Target.Python = []string{"python3", "train.py"}, "3.11.2"
	forward := py("Linear.forward", "/srv/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 114)
	for i := range 5 {
		n := int64(i + 1)
		s.Sites = append(s.Sites, alloc.Site{ID: alloc.StackID(n), Function: "posix_memalign", InUseBytes: n << 20, InUseObjects: n,
			OldestAge: time.Duration(n) * time.Second, Stack: []alloc.Frame{
				{Address: torchMap.Start + 0x3a51000 + uint64(n)<<8, Mapping: torchMap}, interp("cfunction_call"), forward,
				py("step", "/srv/app/train.py", 21),
			}})
	}
	s.Sites = append(s.Sites,
		alloc.Site{ID: 6, Function: "malloc", InUseBytes: 4 << 10, InUseObjects: 2, OldestAge: 90 * time.Second, Stack: []alloc.Frame{
			interp("_PyObject_Malloc"), py("step", "/srv/app/train.py", 21),
		}},
		alloc.Site{ID: 7, Function: "malloc", InUseBytes: 2 << 10, InUseObjects: 1, OldestAge: time.Second, Stack: []alloc.Frame{
			interp("_PyObject_Malloc"), py("step", "/srv/app/train.py", 22),
		}},
		alloc.Site{ID: 8, Function: "malloc", InUseBytes: 1 << 10, InUseObjects: 1, OldestAge: time.Second, Stack: []alloc.Frame{
			{Address: torchMap.Start + 0x1234, Mapping: torchMap},
		}},
		alloc.Site{ID: 9, Function: "malloc", InUseBytes: 512, InUseObjects: 1, OldestAge: time.Second, Stack: []alloc.Frame{
			{Address: torchMap.Start + 0x5678, Mapping: torchMap},
		}},
	)
	return s
}

// empty is one in which nothing happened.
func empty() *alloc.Snapshot {
	return &alloc.Snapshot{
		Target: alloc.Target{PID: 7, Command: []string{"sleep", "1000"}, Exe: "/bin/sleep"},
		Start:  time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Duration: time.Second, Ended: "duration",
		Before: alloc.Before{RSS: 1 << 20},
	}
}
