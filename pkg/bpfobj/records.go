// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// ErrFull means that a table of the programs has no room left.
var ErrFull = errors.New("table full")

// ErrRecord means that a record of the ring buffer does not have its type's
// form, which is a bug of this program.
var ErrRecord = errors.New("malformed record")

// Record is one of *Stack, *Raw, *Code, *MapCall, *UnknownPC, *Exec, *Loader and
// *Sample.
type Record any

// PythonFrame is a Python frame as the programs saw it.
type PythonFrame struct {
	Code     uint64 // key of a Code, 0 for an entry without code of its own
	Position int32  // bytes from the first instruction, or f_lasti
	Owner    uint8
	Entry    bool // an eval call begins here
}

// Stack is the stack of a site's first allocation. Frames are leaf first.
type Stack struct {
	Site         alloc.StackID
	Function     int // row
	Native       []uint64
	Python       []PythonFrame
	NativeStatus int
	PythonStatus int
	Generation   uint64 // of the mappings
	TID          int
	Size         uint64
}

// Code is a code object as the programs copied it: the raw bytes of its strings
// from the start of each object, cut where they are too long.
type Code struct {
	Key, Address              uint64
	FirstLine, FirstTraceable int32
	Ident                     [4]uint64
	Filename, Name, LineTable []byte
}

// Raw is the memory of a stack that ended in code without a mapping, with the
// registers of its last known frame. It comes before the Stack of the same site.
type Raw struct {
	Site       alloc.StackID
	IP, SP, BP uint64
	Data       []byte // from SP on
}

// MapCall is a successful mmap, munmap or mremap. Times are CLOCK_MONOTONIC.
type MapCall struct {
	Role                  alloc.Role
	Address, Length       uint64 // of mremap: before
	NewAddress, NewLength uint64 // of mremap: after
	EntryTime, Time       uint64
	Site                  alloc.StackID // 0: not memory (a file, a reservation)
	Function              int
	TID                   int
	Protection, Flags     uint32
}

// UnknownPC is an address outside all mappings in use.
type UnknownPC struct{ PC uint64 }

// Exec says that the target has replaced its program.
type Exec struct{ Time uint64 }

// Loader says that the dynamic loader has changed its list of libraries.
type Loader struct{}

// Sample is an allocation of sampled mode; Undo takes one back that turned out
// to be part of another call.
type Sample struct {
	Site     alloc.StackID
	Function int
	Size     uint64
	Undo     bool
}

// Reader reads the ring buffer. One goroutine at a time.
type Reader struct {
	r   *ringbuf.Reader
	rec ringbuf.Record
}

// NewReader opens the ring buffer. The caller closes the Reader before the
// Objects.
func (o *Objects) NewReader() (*Reader, error) {
	r, err := ringbuf.NewReader(o.coll.Maps["events"])
	if err != nil {
		return nil, fmt.Errorf("opening the ring buffer: %w", err)
	}
	return &Reader{r: r}, nil
}

// Next returns the next record, waiting until deadline. The error is
// os.ErrDeadlineExceeded when there is none and os.ErrClosed after Close.
// Records that are queued without a wake-up are found at the deadline.
func (r *Reader) Next(deadline time.Time) (Record, error) {
	r.r.SetDeadline(deadline)
	if err := r.r.ReadInto(&r.rec); err != nil {
		return nil, err
	}
	return decode(r.rec.RawSample)
}

// Close frees the reader and ends a Next that waits.
func (r *Reader) Close() error { return r.r.Close() }

// as views the head of b as a T. Records lie 8-byte aligned in what the ring
// buffer's reader returns.
func as[T any](b []byte) (*T, error) {
	var t T
	if len(b) < int(unsafe.Sizeof(t)) {
		return nil, fmt.Errorf("decoding %T of %d bytes: %w", t, len(b), ErrRecord)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t)), b)
	return &t, nil
}

// checked keeps a nil pointer from becoming a Record that is not nil.
func checked[T any](r *T, err error) (Record, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func decode(b []byte) (Record, error) {
	kind, err := as[uint32](b)
	if err != nil {
		return nil, err
	}
	switch allocRecordType(*kind) {
	case allocRecordTypeRECORD_STACK:
		return checked(decodeStack(b))
	case allocRecordTypeRECORD_CODE:
		return checked(decodeCode(b))
	case allocRecordTypeRECORD_RAW:
		w, err := as[allocRawRecord](b)
		if err != nil {
			return nil, err
		}
		return &Raw{
			Site: alloc.StackID(w.Site), IP: w.Ip, SP: w.Sp, BP: w.Bp,
			Data: append([]byte(nil), w.Data[:min(int(w.Length), len(w.Data))]...),
		}, nil
	case allocRecordTypeRECORD_MAP:
		w, err := as[allocMapRecord](b)
		if err != nil {
			return nil, err
		}
		return &MapCall{
			Role: alloc.Role(w.Role), Address: w.Address, Length: w.Length,
			NewAddress: w.NewAddress, NewLength: w.NewLength, EntryTime: w.EntryTime, Time: w.Time,
			Site: alloc.StackID(w.Site), Function: int(w.Function), TID: int(w.Tid),
			Protection: w.Protection, Flags: w.Flags,
		}, nil
	case allocRecordTypeRECORD_UNKNOWN_PC:
		w, err := as[allocPcRecord](b)
		if err != nil {
			return nil, err
		}
		return &UnknownPC{PC: w.Pc}, nil
	case allocRecordTypeRECORD_EXEC:
		w, err := as[allocEventRecord](b)
		if err != nil {
			return nil, err
		}
		return &Exec{Time: w.Time}, nil
	case allocRecordTypeRECORD_LOADER:
		return &Loader{}, nil
	case allocRecordTypeRECORD_SAMPLE:
		w, err := as[allocSampleRecord](b)
		if err != nil {
			return nil, err
		}
		return &Sample{Site: alloc.StackID(w.Site), Function: int(w.Function), Size: w.Size, Undo: w.Undo != 0}, nil
	}
	return nil, fmt.Errorf("decoding record of type %d: %w", *kind, ErrRecord)
}

func decodeStack(b []byte) (*Stack, error) {
	w, err := as[allocStackRecord](b)
	if err != nil {
		return nil, err
	}
	b = b[unsafe.Sizeof(*w):]
	nn, np := int(w.NativeCount), int(w.PythonCount)
	if nn > len(b)/8 || np > (len(b)-8*nn)/int(unsafe.Sizeof(allocPythonFrame{})) {
		return nil, fmt.Errorf("decoding a stack of %d and %d frames: %w", nn, np, ErrRecord)
	}
	s := &Stack{
		Site: alloc.StackID(w.Site), Function: int(w.Function),
		NativeStatus: int(w.NativeStatus), PythonStatus: int(w.PythonStatus),
		Generation: w.MapsGeneration, TID: int(w.Tid), Size: w.Size,
		Native: make([]uint64, nn), Python: make([]PythonFrame, np),
	}
	for i := range s.Native {
		p, _ := as[uint64](b[8*i:])
		s.Native[i] = *p
	}
	b = b[8*nn:]
	for i := range s.Python {
		f, _ := as[allocPythonFrame](b[i*int(unsafe.Sizeof(allocPythonFrame{})):])
		s.Python[i] = PythonFrame{Code: f.Code, Position: f.Position, Owner: uint8(f.Owner), Entry: f.Flags&1 != 0}
	}
	return s, nil
}

func decodeCode(b []byte) (*Code, error) {
	w, err := as[allocCodeRecord](b)
	if err != nil {
		return nil, err
	}
	cut := func(b []uint8, n uint32) []byte { return append([]byte(nil), b[:min(int(n), len(b))]...) }
	return &Code{
		Key: w.Key, Address: w.Address, FirstLine: w.FirstLine, FirstTraceable: w.FirstTraceable,
		Ident:    w.Ident,
		Filename: cut(w.Filename[:], w.FilenameLen), Name: cut(w.Name[:], w.NameLen),
		LineTable: cut(w.Linetable[:], w.LinetableLen),
	}, nil
}
