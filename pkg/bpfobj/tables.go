// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// MaxFunctions is the number of rows the table of functions has room for.
const MaxFunctions = 512

// MaxMappings is the number of executable mappings that can be in use at once;
// one of several thousand has been seen in the wild, half the array is in use.
const MaxMappings = 8192

// Flags of a function, FUNCTION_* of bpf/lib/function.h.
const (
	flagGlibc = 1 << iota
	flagNests
	flagThrows
)

// SetFunction writes a row of the table of functions. glibc says that the
// function's memory lies in glibc's chunks.
func (o *Objects) SetFunction(row int, f alloc.Function, glibc bool) error {
	if row < 0 || row >= MaxFunctions {
		return fmt.Errorf("writing function %q: no row %d", f.Name, row)
	}
	w := allocFunction{
		Role: uint8(f.Role), Kind: uint8(f.Kind), Result: uint8(f.Result),
		Size: int8(f.Size), Count: int8(f.Count), Ptr: int8(f.Ptr), Out: int8(f.Out),
	}
	if glibc {
		w.Flags |= flagGlibc
	}
	if f.Role == alloc.RoleRealloc || f.Role == alloc.RoleFree && f.Name != "free" {
		w.Flags |= flagNests
	}
	if f.Throws {
		w.Flags |= flagThrows
	}
	if err := o.coll.Maps["functions"].Put(uint32(row), &w); err != nil {
		return fmt.Errorf("writing function %q: %w", f.Name, err)
	}
	return nil
}

// Info is an unwind rule; see pkg/unwind Info, whose layout it shares.
type Info = struct {
	Flags, BaseReg, AuxBaseReg, MergeOpcode uint8
	Param, AuxParam                         int32
}

// WritePages copies page indexes to the given place of the array, counted in
// elements of 4 bytes.
func (o *Objects) WritePages(at int, pages []uint32) error {
	return o.writeWords("unwind_pages", at, pages)
}

// WriteRows copies rows likewise.
func (o *Objects) WriteRows(at int, rows []uint32) error {
	return o.writeWords("unwind_rows", at, rows)
}

func (o *Objects) writeWords(name string, at int, words []uint32) error {
	if len(words) == 0 {
		return nil
	}
	mem, err := o.coll.Maps[name].Memory()
	if err != nil {
		return fmt.Errorf("mapping %s: %w", name, err)
	}
	if (at+len(words))*4 > int(mem.Size()) {
		return fmt.Errorf("writing %s: %w", name, ErrFull)
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 4*len(words))
	if _, err := mem.WriteAt(raw, int64(at)*4); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// infoStride is the size of an array element: values are padded to 8 bytes.
const infoStride = 16

// WriteInfos copies unwind rules to the given place of their array.
func (o *Objects) WriteInfos(at int, n int, info func(i int) Info) error {
	mem, err := o.coll.Maps["unwind_infos"].Memory()
	if err != nil {
		return fmt.Errorf("mapping unwind_infos: %w", err)
	}
	if (at+n)*infoStride > int(mem.Size()) {
		return fmt.Errorf("writing unwind_infos: %w", ErrFull)
	}
	raw := make([]byte, n*infoStride)
	for i := range n {
		x, b := info(i), raw[i*infoStride:]
		b[0], b[1], b[2], b[3] = x.Flags, x.BaseReg, x.AuxBaseReg, x.MergeOpcode
		binary.NativeEndian.PutUint32(b[4:], uint32(x.Param))
		binary.NativeEndian.PutUint32(b[8:], uint32(x.AuxParam))
	}
	if _, err := mem.WriteAt(raw, int64(at)*infoStride); err != nil {
		return fmt.Errorf("writing unwind_infos: %w", err)
	}
	return nil
}

// Mapping is an executable mapping of the target and where the unwind table of
// its file lies in the arrays.
type Mapping struct {
	Start, End uint64
	Bias       uint64 // target address - file-virtual address
	PageBase   uint32
	PageCount  uint32 // entries of the page index, one more than pages; 0 = no table
	RowBase    uint32
	InfoBase   uint32
}

// SetMappings makes the mappings, sorted by Start, the ones in use: they are
// written to the half of the array that is not, then the halves are switched.
// newEpoch says that some addresses mean something else than before: equal
// addresses are then other stacks.
// A stack unwound across the switch may end early, which is counted. Not safe
// for concurrent use with itself. Returns the new generation.
func (o *Objects) SetMappings(ms []Mapping, newEpoch bool) (uint64, error) {
	if len(ms) > MaxMappings {
		return o.gen, fmt.Errorf("writing %d mappings: %w (room for %d)", len(ms), ErrFull, MaxMappings)
	}
	half := o.half ^ 1
	first := half * MaxMappings
	keys := make([]uint32, len(ms))
	values := make([]allocMapping, len(ms))
	for i, m := range ms {
		keys[i] = first + uint32(i)
		values[i] = allocMapping{
			Start: m.Start, End: m.End, Bias: m.Bias,
			PageBase: m.PageBase, PageCount: m.PageCount, RowBase: m.RowBase, InfoBase: m.InfoBase,
		}
	}
	if len(ms) > 0 {
		if _, err := o.coll.Maps["mappings"].BatchUpdate(keys, values, &ebpf.BatchOptions{}); err != nil {
			return o.gen, fmt.Errorf("writing mappings: %w", err)
		}
	}
	if err := o.coll.Variables["mappings_in_use"].Set(uint64(first)<<32 | uint64(len(ms))); err != nil {
		return o.gen, fmt.Errorf("switching mappings: %w", err)
	}
	if newEpoch {
		o.epoch++
		if err := o.coll.Variables["address_epoch"].Set(o.epoch); err != nil {
			return o.gen, fmt.Errorf("numbering the address space: %w", err)
		}
	}
	o.gen++
	if err := o.coll.Variables["mappings_generation"].Set(o.gen); err != nil {
		return o.gen, fmt.Errorf("numbering mappings: %w", err)
	}
	o.half = half
	return o.gen, nil
}
