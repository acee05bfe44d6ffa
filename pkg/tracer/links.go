// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/link"

	"github.com/unfreed/unfreed/pkg/attach"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/proc"
)

// newAttacher hands the loaded programs to the attacher.
func (s *Session) newAttacher() (*attach.Attacher, error) {
	p := attach.Programs{
		Session: s.obj.Program("call_session"), Free: s.obj.Program("free_multi"),
		Entry: s.obj.Program("call_entry"), Return: s.obj.Program("call_return"),
		PerfEntry: s.obj.Program("perf_entry"), PerfReturn: s.obj.Program("perf_return"),
		PerfFree: s.obj.Program("perf_free"),
	}
	return attach.NewAttacher(s.p.LocalPID(), p, map[bpfobj.Mode]attach.Mode{
		bpfobj.ModeSession: attach.ModeSession, bpfobj.ModeMulti: attach.ModeMulti, bpfobj.ModePerf: attach.ModePerf,
	}[s.obj.Mode()])
}

// openAgain opens the file of a mapping for another owner.
func (fs *files) openAgain(m proc.Mapping) (*os.File, error) {
	f := fs.get(m)
	if f.f == nil {
		return nil, f.err
	}
	return f.reopen()
}

// watch probes the function of a dynamic loader at a file offset.
func (s *Session) watch(f *file, offset uint64) error {
	ex, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.f.Fd()))
	if err != nil {
		return fmt.Errorf("opening %q: %w", f.path, err)
	}
	var l link.Link
	if p := s.obj.Program("loader_multi"); p != nil {
		l, err = ex.UprobeMulti(nil, p, &link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: uint32(s.p.LocalPID())})
	} else {
		l, err = ex.Uprobe(debugState, s.obj.Program("loader_perf"), &link.UprobeOptions{Address: offset, PID: s.p.LocalPID()})
	}
	if err != nil {
		return fmt.Errorf("watching the loader %q: %w", f.path, err)
	}
	s.linksMu.Lock()
	defer s.linksMu.Unlock()
	s.watches = append(s.watches, l)
	return nil
}

// watchProcess attaches the programs that see the target fork and exec.
func (s *Session) watchProcess() error {
	for program, tracepoint := range map[string]string{
		"process_exec": "sched_process_exec", "process_fork": "sched_process_fork",
	} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: s.obj.Program(program)})
		if err != nil {
			return fmt.Errorf("watching %s: %w", tracepoint, err)
		}
		s.linksMu.Lock()
		s.watches = append(s.watches, l)
		s.linksMu.Unlock()
	}
	return nil
}

func (s *Session) closeWatches() error {
	s.linksMu.Lock()
	defer s.linksMu.Unlock()
	var errs []error
	for _, l := range s.watches {
		errs = append(errs, l.Close())
	}
	s.watches = nil
	return errors.Join(errs...)
}
