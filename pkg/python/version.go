// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

const (
	minMinor = 9  // CPython 3.9 is the oldest supported
	maxMinor = 14 // and 3.14 the newest
	// firstDebugOffsets is the first minor version with _Py_DebugOffsets.
	firstDebugOffsets = 13
)

// Version is a CPython version, as in PY_VERSION_HEX.
type Version struct {
	Major, Minor, Micro uint8
	Level               uint8 // 0xA alpha, 0xB beta, 0xC release candidate, 0xF final
	Serial              uint8 // of the alpha, beta or candidate
}

// levels are the letters of release levels in a version's text.
var levels = map[string]uint8{"a": 0xA, "b": 0xB, "rc": 0xC, "c": 0xC, "": 0xF}

// String returns the version as Python writes it: "3.11.2", "3.14.0rc1".
func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
	switch v.Level {
	case 0xA:
		s += fmt.Sprintf("a%d", v.Serial)
	case 0xB:
		s += fmt.Sprintf("b%d", v.Serial)
	case 0xC:
		s += fmt.Sprintf("rc%d", v.Serial)
	}
	return s
}

// versionOfHex unpacks a PY_VERSION_HEX (Include/patchlevel.h).
func versionOfHex(h uint32) (Version, bool) {
	v := Version{
		Major: uint8(h >> 24), Minor: uint8(h >> 16), Micro: uint8(h >> 8),
		Level: uint8(h>>4) & 0xF, Serial: uint8(h) & 0xF,
	}
	return v, v.Major >= 2 && v.Major <= 4 && v.Level >= 0xA
}

// versionText is a PY_VERSION: what Py_GetVersion's text begins with.
var versionText = regexp.MustCompile(`^(\d)\.(\d{1,2})(?:\.(\d{1,3}))?(?:(a|b|c|rc)(\d{1,2}))?\+?(?:$| \()`)

// parseVersion parses the text of a PY_VERSION, or one of Py_GetVersion.
func parseVersion(text []byte) (Version, bool) {
	m := versionText.FindSubmatch(text)
	if m == nil {
		return Version{}, false
	}
	var n [4]uint8
	for i, part := range [][]byte{m[1], m[2], m[3], m[5]} {
		if len(part) == 0 {
			continue
		}
		x, err := strconv.ParseUint(string(part), 10, 8)
		if err != nil {
			return Version{}, false
		}
		n[i] = uint8(x)
	}
	v := Version{Major: n[0], Minor: n[1], Micro: n[2], Level: levels[string(m[4])], Serial: n[3]}
	return v, v.Major >= 2 && v.Major <= 4
}

// maxVersionFunc bounds the code of Py_GetVersion that is looked at. It takes 60
// to 150 bytes in known builds.
const maxVersionFunc = 512

// version tells the exact version: Py_Version where there is one; else from the
// text that Py_GetVersion refers to, which is either the constant PY_VERSION or
// the buffer that it was formatted into when the interpreter started. Neither
// the file's name nor a text that merely looks like a version is trusted.
func (img *image) version(mem Target) (Version, error) {
	if s, ok := img.symbols[symVersion]; ok {
		var b [4]byte
		if _, err := img.ReadVaddr(b[:], s.Value); err != nil {
			return Version{}, fmt.Errorf("reading %s: %w", symVersion, err)
		}
		h := binary.LittleEndian.Uint32(b[:])
		v, ok := versionOfHex(h)
		if !ok {
			return Version{}, fmt.Errorf("its %s is %#x, which is no version", symVersion, h)
		}
		return v, nil
	}
	s, ok := img.symbols[symGetVersion]
	if !ok {
		return Version{}, errors.New("it has neither " + symVersion + " nor " + symGetVersion)
	}
	size := min(s.Size, maxVersionFunc)
	if size == 0 {
		size = maxVersionFunc
	}
	code := make([]byte, size)
	n, err := img.ReadVaddr(code, s.Value)
	if n == 0 {
		return Version{}, fmt.Errorf("reading %s: %w", symGetVersion, err)
	}
	for _, ref := range dataRefs(img.Machine(), code[:n], s.Value) {
		if v, ok := img.versionAt(mem, ref); ok {
			return v, nil
		}
	}
	return Version{}, errors.New("its version cannot be told: " + symGetVersion + " refers to none")
}

// versionAt parses the text at a virtual address: in the file, or, for what
// is filled in at run time, in the target.
func (img *image) versionAt(mem Target, vaddr uint64) (Version, bool) {
	var b [32]byte
	if n, _ := img.ReadVaddr(b[:], vaddr); n > 0 {
		if v, ok := parseVersion(cstring(b[:n])); ok {
			return v, ok
		}
	}
	if n, _ := mem.ReadAt(b[:], int64(vaddr+img.bias)); n > 0 {
		return parseVersion(cstring(b[:n]))
	}
	return Version{}, false
}

// cstring returns b up to its first NUL.
func cstring(b []byte) []byte {
	text, _, _ := bytes.Cut(b, []byte{0})
	return text
}
