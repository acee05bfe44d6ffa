// SPDX-License-Identifier: Apache-2.0

package elfsym

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// The container of an .xz file is read here, and only its LZMA2 streams by the
// library: the library's own container reader allocates the dictionary that a
// block header asks for, up to 4 GiB. A stream that makes at most n bytes needs
// no more than n bytes of dictionary. Format: tukaani.org/xz/xz-file-format.txt,
// sections 2.1 and 3.1.
const (
	xzHeaderSize  = 12
	xzFilterLZMA2 = 0x21
	xzMaxBlocks   = 4096 // xz -T splits at 24 MiB by default
)

var xzMagic = []byte{0xfd, '7', 'z', 'X', 'Z', 0}

// unxz decompresses the first stream of an .xz file to at most limit bytes.
func unxz(b []byte, limit int) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the decoder met input it did not expect
			out, err = nil, fmt.Errorf("decoding LZMA2 (%v): %w", p, ErrCorrupt)
		}
	}()
	if len(b) < xzHeaderSize || !bytes.Equal(b[:6], xzMagic) {
		return nil, fmt.Errorf("no xz header: %w", ErrCorrupt)
	}
	newHash, checkSize, err := xzCheck(b[7] & 0x0f)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(b[xzHeaderSize:])
	var buf bytes.Buffer
	for range xzMaxBlocks {
		dict, end, err := xzBlockHeader(r)
		if err != nil || end {
			return buf.Bytes(), err
		}
		if err := xzBlock(&buf, r, dict, limit, newHash(), checkSize); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d xz blocks: %w", xzMaxBlocks, ErrTooLarge)
}

// xzCheck returns the hash of a check id, and the check's size.
func xzCheck(id byte) (func() hash.Hash, int, error) {
	switch id {
	case 0:
		return func() hash.Hash { return nil }, 0, nil
	case 1:
		return func() hash.Hash { return crc32.NewIEEE() }, 4, nil
	case 4:
		return func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) }, 8, nil
	case 10:
		return sha256.New, 32, nil
	}
	return nil, 0, fmt.Errorf("xz check %d: %w", id, ErrCorrupt)
}

// xzBlockHeader reads a block's header and returns the size of its dictionary.
// end reports that the blocks are over.
func xzBlockHeader(r *bytes.Reader) (dict int64, end bool, err error) {
	size, err := r.ReadByte()
	if err != nil {
		return 0, false, errXZ("block header")
	}
	if size == 0 {
		return 0, true, nil // the index
	}
	h := make([]byte, int(size)*4+4)
	h[0] = size
	if _, err := io.ReadFull(r, h[1:]); err != nil {
		return 0, false, errXZ("block header")
	}
	body := h[:len(h)-4]
	if crc32.ChecksumIEEE(body) != le.Uint32(h[len(body):]) {
		return 0, false, errXZ("block header's checksum")
	}
	flags := body[1]
	p := bytes.NewReader(body[2:])
	for _, present := range []byte{0x40, 0x80} { // compressed, uncompressed size
		if flags&present != 0 {
			if _, err := binary.ReadUvarint(p); err != nil {
				return 0, false, errXZ("block sizes")
			}
		}
	}
	var filter [3]byte
	if _, err := io.ReadFull(p, filter[:]); err != nil {
		return 0, false, errXZ("filter")
	}
	if flags&0x3f != 0 || filter[0] != xzFilterLZMA2 || filter[1] != 1 {
		return 0, false, errXZ("filter other than LZMA2")
	}
	dict, err = lzma.DecodeDictCap(filter[2])
	if err != nil {
		return 0, false, errXZ("dictionary size")
	}
	return dict, false, nil
}

// xzBlock decompresses one block and verifies its check.
func xzBlock(buf *bytes.Buffer, r *bytes.Reader, dict int64, limit int, h hash.Hash, checkSize int) error {
	start := r.Len()
	dict = max(min(dict, int64(limit)), lzma.MinDictCap)
	z, err := lzma.Reader2Config{DictCap: int(dict)}.NewReader2(r)
	if err != nil {
		return fmt.Errorf("%w: %w", errXZ("LZMA2 stream"), err)
	}
	from := buf.Len()
	n, err := io.Copy(buf, io.LimitReader(z, int64(limit-from)+1))
	if err != nil {
		return fmt.Errorf("%w: %w", errXZ("LZMA2 stream"), err)
	}
	if int64(from)+n > int64(limit) {
		return fmt.Errorf("more than %d bytes: %w", limit, ErrTooLarge)
	}
	pad := -(start - r.Len()) & 3
	check := make([]byte, pad+checkSize)
	if _, err := io.ReadFull(r, check); err != nil {
		return errXZ("block check")
	}
	if h == nil {
		return nil
	}
	h.Write(buf.Bytes()[from:])
	sum := h.Sum(nil)
	if checkSize < sha256.Size { // crc32 and crc64 stand little-endian
		for i, j := 0, len(sum)-1; i < j; i, j = i+1, j-1 {
			sum[i], sum[j] = sum[j], sum[i]
		}
	}
	if !bytes.Equal(sum, check[pad:]) {
		return errXZ("block check")
	}
	return nil
}

// errXZ names the part of an .xz file that is unreadable.
func errXZ(part string) error {
	return fmt.Errorf("reading xz %s: %w", part, ErrCorrupt)
}
