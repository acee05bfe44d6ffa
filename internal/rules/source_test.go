// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/unfreed/unfreed"

// file is a source file of the repository.
type file struct {
	path string // relative to the root
	text string
	ast  *ast.File // of Go files, else nil
}

func (f *file) dir() string { return filepath.ToSlash(filepath.Dir(f.path)) }

func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// generated reports whether a tool wrote the file, so that people cannot keep
// rules in it.
func (f *file) generated() bool {
	first, _, _ := strings.Cut(f.text, "\n")
	return strings.HasPrefix(first, "// Code generated ")
}

func (f *file) lines() []string { return strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") }

// repository is every source file, with positions for the Go ones.
type repository struct {
	files []*file
	fset  *token.FileSet
}

// languages are the suffixes of what counts as source.
var languages = []string{".go", ".c", ".h", ".cc", ".py", ".sh"}

// read returns the repository's source files, in the order of their paths. They
// are read once.
func read(t *testing.T) *repository {
	t.Helper()
	repo, err := readOnce()
	if err != nil {
		t.Fatalf("reading the source: %v", err)
	}
	return repo
}

var readOnce = sync.OnceValues(readRepository)

func readRepository() (*repository, error) {
	const root = "../.."
	repo := &repository{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			// bin is what the commands build and fetch; git ignores it.
			if rel == "bin" || hidden(d.Name()) && rel != "." && rel != ".ci" {
				return fs.SkipDir
			}
			return nil
		}
		if !source(rel) || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f := &file{path: filepath.ToSlash(rel), text: string(text)}
		if strings.HasSuffix(rel, ".go") {
			if f.ast, err = parser.ParseFile(repo.fset, path, text, parser.ParseComments); err != nil {
				return err
			}
		}
		repo.files = append(repo.files, f)
		return nil
	})
	return repo, err
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

func source(path string) bool {
	for _, suffix := range languages {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	// Scripts without a suffix.
	return strings.HasPrefix(path, ".ci/") || filepath.Base(path) == "Makefile"
}

// goFiles returns the Go files for which keep holds, generated ones excepted.
func (r *repository) goFiles(keep func(*file) bool) []*file {
	var files []*file
	for _, f := range r.files {
		if f.ast != nil && !f.generated() && keep(f) {
			files = append(files, f)
		}
	}
	return files
}

// at returns a position as path:line.
func (r *repository) at(f *file, n ast.Node) (path string, line int) {
	return f.path, r.fset.Position(n.Pos()).Line
}
