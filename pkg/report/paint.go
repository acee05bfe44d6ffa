// SPDX-License-Identifier: Apache-2.0

package report

// paint colours text, or leaves it alone. Layout is done before, as colours
// take bytes and no columns.
type paint bool

func (p paint) with(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string   { return p.with("1", s) }
func (p paint) dim(s string) string    { return p.with("2", s) }
func (p paint) red(s string) string    { return p.with("31", s) }
func (p paint) yellow(s string) string { return p.with("33", s) }
func (p paint) alarm(s string) string  { return p.with("1;37;41", s) }
