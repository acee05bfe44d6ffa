// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/unfreed/unfreed/pkg/elfsym"
)

const (
	// debugRoot is where distributions put separate debug information.
	debugRoot = "/usr/lib/debug"
	// maxChecked is the largest debug file that is read whole for its checksum,
	// which is needed only for files without a build id.
	maxChecked = 4 << 30
)

// buildIDPath is where the debug file of a build id lies.
func buildIDPath(id string) string {
	return path.Join(debugRoot, ".build-id", id[:2], id[2:]+".debug")
}

// debugPaths returns where the debug file of a file may lie, in the order of
// gdb ("Debugging Information in Separate Files").
func debugPaths(file, buildID, link string) []string {
	var paths []string
	if len(buildID) > 2 {
		paths = append(paths, buildIDPath(buildID))
	}
	if link == "" || !path.IsAbs(file) {
		return paths
	}
	dir := path.Dir(path.Clean(file))
	paths = append(paths, path.Join(dir, link), path.Join(dir, ".debug", link), path.Join(debugRoot, dir, link))
	// Where /lib is a link to /usr/lib, a package may use either name.
	if rest, ok := strings.CutPrefix(dir, "/usr"); ok {
		return append(paths, path.Join(debugRoot, rest, link))
	}
	return append(paths, path.Join(debugRoot, "usr", dir, link))
}

// findDebugFile opens the separate debug information of the module, nil if
// there is none. One that is there but belongs to another build is an error
// that is told.
func (m *module) findDebugFile() *image {
	if m.openDebug == nil {
		return nil
	}
	id := m.main.BuildID()
	link, crc, _ := m.main.DebugLink()
	for _, p := range debugPaths(m.path, id, link) {
		img := m.tryDebug(p)
		if img == nil {
			continue
		}
		if err := m.matches(img, id, crc); err != nil {
			m.fail(fmt.Errorf("using debug file %q: %w", p, err))
			img.file.Close()
			continue
		}
		return img
	}
	return nil
}

// tryDebug opens a debug file, nil if it is not there.
func (m *module) tryDebug(p string) *image {
	f, err := m.openDebug(p)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.fail(fmt.Errorf("opening debug file %q: %w", p, err))
		}
		return nil
	}
	if f == nil {
		return nil
	}
	if a, err := f.Stat(); err == nil {
		if b, err := m.main.file.Stat(); err == nil && os.SameFile(a, b) {
			f.Close() // the link's name can be the file's own
			return nil
		}
	}
	img, err := openImage(f, p)
	if err != nil {
		m.fail(err)
		return nil
	}
	return img
}

var (
	errOtherBuild   = errors.New("it belongs to another build")
	errOtherMachine = errors.New("it is for another machine")
)

// matches checks that a debug file is of the module's build: by build id, or by
// the checksum of the link if one of the two has none.
func (m *module) matches(img *image, id string, crc uint32) error {
	if img.Machine() != m.main.Machine() {
		return errOtherMachine
	}
	if other := img.BuildID(); other != "" && id != "" {
		if other != id {
			return errOtherBuild
		}
		return nil
	}
	st, err := img.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() > maxChecked {
		return elfsym.ErrTooLarge
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, io.NewSectionReader(img.file, 0, st.Size())); err != nil {
		return err
	}
	if h.Sum32() != crc {
		return errOtherBuild
	}
	return nil
}

// findAlternate opens the file into which dwz moved what img shares with other
// debug files, nil if it is not there. It stays open as long as the module.
func (m *module) findAlternate(img *image) (*elfsym.File, error) {
	p, id, ok := img.DebugAltLink()
	if !ok || m.openDebug == nil {
		return nil, nil
	}
	if !path.IsAbs(p) {
		p = path.Join(path.Dir(img.path), p)
	}
	for _, p := range []string{p, buildIDPath(id)} {
		if !path.IsAbs(p) {
			continue
		}
		alt := m.tryDebug(p)
		if alt == nil {
			continue
		}
		if alt.BuildID() != id {
			alt.file.Close()
			continue
		}
		m.alternate = alt
		return alt.File, nil
	}
	return nil, fmt.Errorf("opening supplementary debug file %q: %w", p, fs.ErrNotExist)
}
