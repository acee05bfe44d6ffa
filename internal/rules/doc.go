// SPDX-License-Identifier: Apache-2.0

// Package rules holds the project's rules on its own source, as tests: which
// package may import which, what belongs in cmd only, licence lines, package
// comments, sizes, wording. It has no code of its own. Each failure names the
// place and what to do instead; a rule that is wrong is changed here, with the
// reason, not worked around.
package rules
