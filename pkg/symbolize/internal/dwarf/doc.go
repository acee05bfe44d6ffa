// SPDX-License-Identifier: Apache-2.0

// Package dwarf finds the source position of a code address and the calls that
// the compiler inlined there.
//
// It exists beside the standard library's debug/dwarf because that wants every
// section in memory, which for one library can be a gigabyte, decodes all
// attributes of each entry into an allocated list, and knows neither a work
// limit nor the supplementary files of dwz. This package reads windows of the
// file, decodes the dozen attributes that matter, and keeps per unit only a
// table of its functions and a mark for every 1024 rows of its line program.
//
// It reads DWARF 2 to 5, 32 and 64 bit, for 64-bit little-endian targets. Of
// split DWARF it reads the skeleton: lines, but no inlined calls.
//
// The files are hostile input. Offsets are checked against their section,
// chains and counts against limits.go, and all that is read of a file is charged
// to a budget, so that no arrangement of references makes a lookup run away.
//
// A [Data] is safe for concurrent use.
package dwarf
