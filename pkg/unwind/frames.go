// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Encodings of the pointer in .eh_frame_hdr (LSB 5.0, "DWARF Exception Header
// Encoding"): those that linkers write.
const (
	encPCRelSData4 = 0x1b
	encAbsUData8   = 0x04
	encAbsPtr      = 0x00
)

// findFrames finds .eh_frame in a file whose section table does not name it,
// by .eh_frame_hdr, as the C++ runtime does (LSB 5.0, "Exception Frame
// Header"). Its end is then only known to be that of its segment; a zero word
// ends the records.
func (s *source) findFrames(named map[string]section, p elf.Prog64) (section, bool, error) {
	hdr := section{addr: p.Vaddr, off: int64(p.Off), size: int64(p.Filesz)}
	if x, ok := named[".eh_frame_hdr"]; ok {
		hdr = x
	} else if p.Type == 0 || !s.inFile(p.Off, p.Filesz) {
		return section{}, false, nil
	}
	var head [12]byte
	if hdr.size < int64(len(head)) {
		return section{}, false, nil
	}
	if err := s.read(head[:], uint64(hdr.off)); err != nil {
		return section{}, false, fmt.Errorf("reading .eh_frame_hdr: %w", err)
	}
	var addr uint64
	switch version, enc := head[0], head[1]; {
	case version != 1:
		return section{}, false, nil
	case enc == encPCRelSData4:
		addr = hdr.addr + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(head[4:]))))
	case enc == encAbsPtr || enc == encAbsUData8:
		addr = binary.LittleEndian.Uint64(head[4:])
	default:
		return section{}, false, nil
	}
	for _, seg := range s.segments {
		if elf.ProgType(seg.Type) != elf.PT_LOAD || addr < seg.Vaddr || addr-seg.Vaddr >= seg.Filesz {
			continue
		}
		skip := addr - seg.Vaddr
		return section{
			addr:  addr,
			off:   int64(seg.Off + skip),
			size:  min(int64(seg.Filesz-skip), maxFrames),
			limit: maxFrames,
		}, true, nil
	}
	return section{}, false, nil
}
