// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

const (
	// maxMangled is the longest name that is demangled: the demangler recurses
	// over the name, which can be made to order.
	maxMangled = 16 << 10
	// maxDemangledLog2 bounds the readable name, since a short mangled one can
	// stand for an exponentially long one. 2^12 is 4 KiB.
	maxDemangledLog2 = 12
)

// readable returns the name of a function as people know it. C++ and Rust
// names are demangled with the options of pprof's default mode (google/pprof
// internal/symbolizer, demanglerModeToOptions), so that a profile that pprof
// symbolizes elsewhere agrees. What a compiler appends for parts and copies of a
// C function is cut off: the demangler does the same for the others.
func readable(name string) string {
	if len(name) <= maxMangled && (strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R")) {
		if s, ok := demangled(name); ok {
			return s
		}
	}
	return trimClone(name)
}

// demangled demangles a name that can be hostile input, for which the library
// promises an error and no panic.
func demangled(name string) (s string, ok bool) {
	defer func() {
		if recover() != nil {
			s, ok = "", false
		}
	}()
	s, err := demangle.ToString(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams,
		demangle.MaxLength(maxDemangledLog2))
	return s, err == nil && s != ""
}

// cloneSuffixes are the words that GCC and LLVM append to a function's name,
// and whether a number must follow.
var cloneSuffixes = map[string]bool{
	"cold": false, "localalias": false, "part": true, "isra": true, "constprop": true, "lto_priv": true,
	"llvm": true, "clone": true, "__uniq": true,
}

// trimClone cuts off suffixes such as ".part.0.constprop.1.cold". A name with
// anything else behind a dot is left alone: Go's have dots of their own.
func trimClone(name string) string {
	base, rest, ok := strings.Cut(name, ".")
	if !ok || base == "" {
		return name
	}
	parts := strings.Split(rest, ".")
	for i := 0; i < len(parts); i++ {
		numbered, known := cloneSuffixes[parts[i]]
		if !known {
			return name
		}
		if i+1 < len(parts) && isNumber(parts[i+1]) {
			i++
		} else if numbered {
			return name
		}
	}
	return base
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
