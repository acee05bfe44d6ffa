// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func document(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// fields lists the JSON fields of a type as paths, "findings[].id".
func fields(t reflect.Type, prefix string) (list []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return fields(t.Elem(), prefix)
	case reflect.Struct:
	default:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" {
			continue
		}
		path := prefix + tag
		if f.Type.Kind() == reflect.Slice {
			path += "[]"
		}
		list = append(list, path)
		list = append(list, fields(f.Type, path+".")...)
	}
	return list
}

// TestSchemaDocument holds docs/doctor.md against the types.
func TestSchemaDocument(t *testing.T) {
	_, doc, ok := strings.Cut(document(t), "## JSON")
	if !ok {
		t.Fatal("no section JSON")
	}
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(doc, -1) {
		got = append(got, m[1])
	}
	want := fields(reflect.TypeFor[Report](), "")
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-types +document):\n%s", diff)
	}
}

// TestFindingsDocument holds docs/doctor.md against the findings in the source.
func TestFindingsDocument(t *testing.T) {
	doc, _, _ := strings.Cut(document(t), "## JSON")
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(doc, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			got = append(got, m[1])
		}
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`\b(?:ID|id): "([a-z_]+)"`)
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range id.FindAllStringSubmatch(string(source), -1) {
			want = append(want, m[1])
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-source +document):\n%s", diff)
	}
}

func TestJSONShape(t *testing.T) {
	for _, r := range []*Report{healthy(), stuck()} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "null") {
			t.Errorf("a null in %s", text)
		}
	}
	r, err := Check(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
}
