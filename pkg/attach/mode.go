// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/unfreed/unfreed/pkg/kfeature"
)

// Mode is a way to make links.
type Mode uint8

// The modes, the best first.
const (
	ModeAuto    Mode = iota // the first that the kernel has
	ModeSession             // uprobe sessions: one program at entry and return (Linux 6.13)
	ModeMulti               // uprobe_multi links: one link for many functions (Linux 6.6)
	ModePerf                // a perf event for each function (Linux 4.17)
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeSession:
		return "session"
	case ModeMulti:
		return "multi"
	case ModePerf:
		return "perf"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Supported returns the best mode that the kernel has, so that the caller can
// load the programs for it and no others. An error means that the question could
// not be answered, mostly for lack of privileges.
func Supported() (Mode, error) {
	for _, m := range []Mode{ModeSession, ModeMulti} {
		switch err := supports(m); {
		case err == nil:
			return m, nil
		case !errors.Is(err, ebpf.ErrNotSupported):
			return ModeAuto, err
		}
	}
	return ModePerf, nil
}

// supports returns nil if the kernel has a mode, ErrNotSupported if not, and
// another error if that could not be found out.
func supports(m Mode) error {
	var needs []kfeature.Feature
	switch m {
	case ModeSession:
		// Multi links, too, for those functions whose return does not matter.
		needs = []kfeature.Feature{kfeature.UprobeMulti, kfeature.UprobeSession, kfeature.SessionKfuncs}
	case ModeMulti:
		needs = []kfeature.Feature{kfeature.UprobeMulti}
	}
	for _, f := range needs {
		if err := kfeature.Have(f); err != nil {
			return err
		}
	}
	return nil
}
