// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unfreed/unfreed/pkg/alloc"
	"github.com/unfreed/unfreed/pkg/bpfobj"
	"github.com/unfreed/unfreed/pkg/ledger"
	"github.com/unfreed/unfreed/pkg/python"
)

// readEvery is how long records may lie in the ring buffer before they are
// looked for: the programs wake the reader only when much is queued, since a
// wake-up at every record doubled the cost of a captured call.
const readEvery = 50 * time.Millisecond

// read takes records from the ring buffer until ctx is done, and then what is
// left.
func (s *Session) read(ctx context.Context) {
	for {
		ended := ctx.Err() != nil
		deadline := time.Now().Add(readEvery)
		if ended {
			deadline = time.Now()
		}
		rec, err := s.rd.Next(deadline)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if ended {
				return
			}
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, bpfobj.ErrRecord):
			s.trouble.add("malformed_records", err.Error())
		case err != nil:
			s.trouble.add("ring_buffer", err.Error())
			return
		default:
			s.handle(rec)
		}
	}
}

func (s *Session) handle(rec bpfobj.Record) {
	switch r := rec.(type) {
	case *bpfobj.Stack:
		s.stacks.add(r, s.space.at(r.Generation), s.space.now())
	case *bpfobj.Raw:
		s.keepRaw(r)
	case *bpfobj.Code:
		s.stacks.codes[r.Key] = s.decode(r)
	case *bpfobj.MapCall:
		s.mapCall(r)
	case *bpfobj.Sample:
		n := int64(1)
		if r.Undo {
			n = -1
		}
		s.sample[sampleKey{r.Site, r.Function, r.Size}] += n
	case *bpfobj.UnknownPC:
		if s.worthALook(r.PC) {
			s.lookAgain()
		} else {
			s.noMoreRaw()
		}
	case *bpfobj.Loader:
		s.lookAgain()
	case *bpfobj.Exec:
		close(s.exec)
	}
}

func (s *Session) decode(r *bpfobj.Code) *python.Code {
	c, err := python.DecodeCode(&s.python.Layout, &python.CodeRecord{
		Address: r.Address, FirstLine: r.FirstLine, FirstTraceable: r.FirstTraceable,
		Ident: r.Ident, Filename: r.Filename, Qualname: r.Name, LineTable: r.LineTable,
	}, s.p)
	if err != nil {
		s.trouble.add("code_undecodable", err.Error())
		return nil
	}
	return c
}

// worthALook reports whether reading the mappings again could explain an
// address: generated code lies in no file, now and later.
func (s *Session) worthALook(pc uint64) bool {
	for _, m := range s.space.now().all {
		if pc > m.Start && pc <= m.End {
			return m.FileBacked() && !m.Exec
		}
	}
	return true
}

// lookAgain asks for the mappings to be read again. Requests that come while
// one is waiting are one.
func (s *Session) lookAgain() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

// From uapi/asm-generic/mman-common.h and uapi/linux/mman.h.
const (
	hugeShift       = 26
	hugeMask        = 0x3f
	defaultHuge     = 2 << 20 // of x86-64
	mremapDontUnmap = 4
)

// mapCall enters a mapping call into the books.
func (s *Session) mapCall(r *bpfobj.MapCall) {
	e := ledger.MapEvent{
		Addr: r.Address, Len: r.Length, Stack: r.Site, Function: uint16(r.Function), TID: uint32(r.TID),
		EntryTime: r.EntryTime, Time: r.Time,
	}
	switch {
	case r.Role == alloc.RoleMap && r.Site != 0:
		e.Op = ledger.OpMap
		if r.Flags&unix.MAP_HUGETLB != 0 {
			e.PageSize = defaultHuge
			if shift := r.Flags >> hugeShift & hugeMask; shift != 0 {
				e.PageSize = 1 << shift
			}
		}
	case r.Role == alloc.RoleMap:
		// A file or a reservation: whatever was mapped there is not any more.
		e.Op = ledger.OpCover
	case r.Role == alloc.RoleUnmap:
		e.Op = ledger.OpUnmap
	case r.Role == alloc.RoleRemap:
		e.Op = ledger.OpRemap
		e.NewAddr, e.NewLen = r.NewAddress, r.NewLength
		e.KeepOld = r.Flags&mremapDontUnmap != 0 || r.Length == 0
	}
	s.books.Apply(e)
}
