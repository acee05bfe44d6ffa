// SPDX-License-Identifier: Apache-2.0

package unwind

import "fmt"

// The layout of a row and the page size of the index, which the BPF program
// has too.
const (
	pageBits = 12 // bits of an address within a page of the index
	infoBits = 20 // bits of a row that hold the index of its Info

	pageSize = 1 << pageBits
	infoMask = 1<<infoBits - 1
)

// Table holds the unwind rows of one ELF file, by file-virtual address. It is
// read-only and safe for concurrent use; there is nothing to close.
//
// A row starts at an address and holds up to the next row. Page i of 4 KiB has
// the rows Rows[Pages[i]:Pages[i+1]], none or up to 4096, in rising order; a
// row is
//
//	offset in page << 20 | index into Infos
//
// Rows[0] belongs to no page: it is the invalid row that holds below the first
// one, so that "the last row at or before pc", which may be of an earlier
// page, always exists. The last row is invalid too, and so is Infos[0].
type Table struct {
	Pages []uint32 // one for each page, then len(Rows); at most 1<<20 + 1
	Rows  []uint32
	Infos []Info
}

// Lookup finds the row that holds at a file-virtual address, and how many
// bytes into it the address is. Where the row starts in an earlier page that
// number is 4096, whatever the distance: see Info.At, which never asks for
// more than that. There is no row (ok is false) beyond the last page.
//
// It does step by step what find_row does in BPF, and is its reference.
func (t *Table) Lookup(vaddr uint64) (info Info, rowDelta uint32, ok bool) {
	page, off := vaddr>>pageBits, uint32(vaddr&(pageSize-1))
	if len(t.Pages) == 0 || page >= uint64(len(t.Pages)-1) {
		return Info{}, 0, false
	}
	first := t.Pages[page]
	lo, hi := first, t.Pages[page+1]
	for lo < hi {
		mid := (lo + hi) / 2
		if t.Rows[mid]>>infoBits <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	row := t.Rows[lo-1]
	rowDelta = pageSize
	if lo > first {
		rowDelta = off - row>>infoBits
	}
	return t.Infos[row&infoMask], rowDelta, true
}

// validate checks everything that Lookup and its like in BPF rely on.
func (t *Table) validate() error {
	pages, rows, infos := len(t.Pages), len(t.Rows), uint32(len(t.Infos))
	if pages < 2 || pages > maxPages+1 || rows < 2 || rows > maxRows || infos < 1 || infos > maxInfos {
		return fmt.Errorf("%w: table of %d pages, %d rows, %d infos", ErrCorrupt, pages-1, rows, infos)
	}
	if t.Pages[0] != 1 || t.Pages[pages-1] != uint32(rows) {
		return fmt.Errorf("%w: table whose pages hold rows %d to %d of %d", ErrCorrupt, t.Pages[0], t.Pages[pages-1], rows)
	}
	if t.Infos[0] != invalid || t.Rows[0] != 0 || t.Infos[min(t.Rows[rows-1]&infoMask, infos-1)] != invalid {
		return fmt.Errorf("%w: table without its invalid rows", ErrCorrupt)
	}
	for i := range pages - 1 {
		lo, hi := t.Pages[i], t.Pages[i+1]
		if lo > hi || hi > uint32(rows) {
			return fmt.Errorf("%w: page %d of a table holds rows %d to %d of %d", ErrCorrupt, i, lo, hi, rows)
		}
		last := -1
		for _, row := range t.Rows[lo:hi] {
			off := int(row >> infoBits)
			if off <= last || row&infoMask >= infos {
				return fmt.Errorf("%w: row %#x in page %d of a table", ErrCorrupt, row, i)
			}
			last = off
		}
	}
	return nil
}
