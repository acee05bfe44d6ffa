// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// SchemaVersion is the version of the JSON report. It rises when a field
// changes its meaning or goes; new fields alone do not raise it.
const SchemaVersion = 1

// JSONOptions says what the JSON report holds.
type JSONOptions struct {
	View    alloc.View
	Profile string // path of the written profile; may be empty
}

// JSON renders the report for programs, indented and with a final newline. Its
// fields are described in docs/report-json.md. Sites without outstanding memory
// are left out: their totals are in the profile.
func JSON(s *alloc.Snapshot, o JSONOptions) ([]byte, error) {
	r := jsonReport{
		Schema:      SchemaVersion,
		Version:     s.Version,
		Target:      s.Target,
		Started:     s.Start.UTC().Format(time.RFC3339Nano),
		Duration:    s.Duration,
		Ended:       s.Ended,
		SampleBytes: max(s.SampleBytes, 1),
		MinAge:      s.MinAge,
		Incomplete:  s.Coverage.Incomplete(),
		Outstanding: totals(s),
		Sites:       []jsonSite{},
		Before:      s.Before,
		Coverage:    s.Coverage,
		Cost:        jsonCost{s.Cost, coreShare(s)},
		Profile:     o.Profile,
	}
	// Programs iterate over these: an empty list, not null.
	r.Target.Command = orEmpty(r.Target.Command)
	c := &r.Coverage
	c.StacksPartial, c.PythonMissing = orEmpty(c.StacksPartial), orEmpty(c.PythonMissing)
	c.EventsLost = orEmpty(c.EventsLost)

	sites := o.View.Sites(s.Sites)
	for i := range sites {
		if sites[i].InUseBytes != 0 || sites[i].InUseObjects != 0 {
			r.Sites = append(r.Sites, newJSONSite(&sites[i]))
		}
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false) // "<module>" is not for a browser
	e.SetIndent("", "  ")
	if err := e.Encode(&r); err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return buf.Bytes(), nil
}

// The types below are the schema; a test holds them against the document.

type jsonReport struct {
	Schema      int            `json:"schema"`
	Version     string         `json:"version"`
	Target      alloc.Target   `json:"target"`
	Started     string         `json:"started"`
	Duration    time.Duration  `json:"duration_ns"`
	Ended       string         `json:"ended"`
	SampleBytes int64          `json:"sample_bytes"`
	MinAge      time.Duration  `json:"min_age_ns"`
	Incomplete  bool           `json:"incomplete"`
	Outstanding []jsonTotal    `json:"outstanding"`
	Sites       []jsonSite     `json:"sites"`
	Before      alloc.Before   `json:"before_attach"`
	Coverage    alloc.Coverage `json:"coverage"`
	Cost        jsonCost       `json:"cost"`
	Profile     string         `json:"profile,omitempty"`
}

type jsonTotal struct {
	Memory  string `json:"memory"`
	Bytes   int64  `json:"bytes"`
	Objects int64  `json:"objects"`
}

type jsonSite struct {
	Bytes        int64         `json:"bytes"`
	Objects      int64         `json:"objects"`
	AllocBytes   int64         `json:"alloc_bytes"`
	AllocObjects int64         `json:"alloc_objects"`
	OldestAge    time.Duration `json:"oldest_age_ns"`
	NewestAge    time.Duration `json:"newest_age_ns"`
	Function     string        `json:"function"`
	Memory       string        `json:"memory"`
	Python       *int          `json:"python_frame,omitempty"`
	Native       *int          `json:"native_frame,omitempty"`
	Frames       []jsonFrame   `json:"frames"`
}

type jsonFrame struct {
	Function    string `json:"function"`
	SystemName  string `json:"system_name,omitempty"`
	File        string `json:"file,omitempty"`
	Line        int    `json:"line,omitempty"`
	StartLine   int    `json:"start_line,omitempty"`
	Language    string `json:"language"`
	Inlined     bool   `json:"inlined,omitempty"`
	Interpreter bool   `json:"interpreter,omitempty"`
	Module      string `json:"module,omitempty"`
	Offset      uint64 `json:"module_offset,omitempty"`
	BuildID     string `json:"build_id,omitempty"`
}

type jsonCost struct {
	alloc.Cost
	CoreShare float64 `json:"core_share"`
}

// totals sums outstanding memory by kind, in the order of kinds, leaving out
// those that the target never used.
func totals(s *alloc.Snapshot) []jsonTotal {
	seen := make(map[alloc.Kind]bool)
	for i := range s.Sites {
		seen[s.Sites[i].Kind] = true
	}
	kinds := make([]alloc.Kind, 0, len(seen))
	for k := range seen {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, cmp.Compare[alloc.Kind])
	list := make([]jsonTotal, 0, len(kinds))
	for _, k := range kinds {
		bytes, objects := s.InUse(k)
		list = append(list, jsonTotal{k.String(), bytes, objects})
	}
	return list
}

func newJSONSite(s *alloc.Site) jsonSite {
	x := jsonSite{
		Bytes:        s.InUseBytes,
		Objects:      s.InUseObjects,
		AllocBytes:   s.AllocBytes,
		AllocObjects: s.AllocObjects,
		OldestAge:    s.OldestAge,
		NewestAge:    s.NewestAge,
		Function:     s.Function,
		Memory:       s.Kind.String(),
		Frames:       make([]jsonFrame, 0, len(s.Stack)),
	}
	python, native := pick(s.Stack)
	x.Python, x.Native = index(python), index(native)
	for i := range s.Stack {
		f := &s.Stack[i]
		j := jsonFrame{
			Function:    f.Label(),
			SystemName:  f.SystemName,
			File:        f.File,
			Line:        f.Line,
			StartLine:   f.StartLine,
			Language:    f.Language.String(),
			Inlined:     f.Inlined,
			Interpreter: f.Interpreter,
			Offset:      f.Offset(),
		}
		if f.Mapping != nil {
			j.Module, j.BuildID = f.Mapping.File, f.Mapping.BuildID
		}
		x.Frames = append(x.Frames, j)
	}
	return x
}

// index is a position that may be missing.
func index(i int) *int {
	if i < 0 {
		return nil
	}
	return &i
}

// orEmpty is the list, or an empty one in place of nil.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
