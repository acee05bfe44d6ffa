// SPDX-License-Identifier: Apache-2.0

package report

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

// fields lists the JSON fields of a type as paths, "sites[].frames[].line".
func fields(t reflect.Type, prefix string) (list, optional []string) {
	switch t.Kind() {
	case reflect.Pointer:
		return fields(t.Elem(), prefix)
	case reflect.Slice:
		return fields(t.Elem(), prefix)
	case reflect.Struct:
	default:
		return nil, nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			l, o := fields(f.Type, prefix)
			list, optional = append(list, l...), append(optional, o...)
			continue
		}
		path := prefix + tag
		if f.Type.Kind() == reflect.Slice {
			path += "[]"
		}
		list = append(list, path)
		if strings.Contains(options, "omitempty") {
			optional = append(optional, path)
		}
		l, o := fields(f.Type, path+".")
		list, optional = append(list, l...), append(optional, o...)
	}
	return list, optional
}

// TestSchemaDocument holds docs/report-json.md against the types.
func TestSchemaDocument(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "report-json.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented, optional []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		documented = append(documented, m[1])
		if strings.Contains(m[2], "*optional*") {
			optional = append(optional, m[1])
		}
	}
	wantAll, wantOptional := fields(reflect.TypeFor[jsonReport](), "")
	for _, l := range [][]string{documented, optional, wantAll, wantOptional} {
		slices.Sort(l)
	}
	if diff := cmp.Diff(wantAll, documented); diff != "" {
		t.Errorf("fields (-types +document):\n%s", diff)
	}
	if diff := cmp.Diff(wantOptional, optional); diff != "" {
		t.Errorf("optional fields (-types +document):\n%s", diff)
	}
}

// TestJSONShape checks on a report what the document promises to programs.
func TestJSONShape(t *testing.T) {
	b, err := JSON(empty(), JSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "null") {
		t.Errorf("an empty report has a null:\n%s", b)
	}
	b, err = JSON(loud(), JSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Schema     int
		Incomplete bool
		Target     struct{ Command []string }
		Sites      []struct {
			Bytes  int64
			Frames []struct{ Function string }
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != 1 || !r.Incomplete {
		t.Errorf("schema %d, incomplete %v", r.Schema, r.Incomplete)
	}
	if r.Target.Command[1] != "evil\x1b[31m\nname" {
		t.Errorf("JSON changes strings: %q", r.Target.Command)
	}
	var bytes int64
	for _, s := range r.Sites {
		bytes += s.Bytes
	}
	if want := int64(12<<20 + 512 + 4096 + 320 + 16); bytes != want {
		t.Errorf("sites hold %d bytes, want %d", bytes, want)
	}
}
