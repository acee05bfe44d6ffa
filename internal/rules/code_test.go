// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestEveryPackageHasAComment(t *testing.T) {
	comments := map[string][]string{} // by folder, of files that have one
	names := map[string]string{}
	for _, f := range read(t).goFiles(func(f *file) bool { return !f.test() }) {
		names[f.dir()] = f.ast.Name.Name
		if f.ast.Doc != nil {
			comments[f.dir()] = append(comments[f.dir()], f.ast.Doc.Text())
		}
	}
	for dir, name := range names {
		want := "Package " + name + " "
		if name == "main" {
			want = "Command "
		}
		switch got := comments[dir]; {
		case len(got) == 0:
			t.Errorf("%s: package %s has no comment; say what it owns and what it may touch", dir, name)
		case len(got) > 1:
			t.Errorf("%s: package %s has %d comments; keep one", dir, name, len(got))
		case !strings.HasPrefix(got[0], want):
			t.Errorf("%s: its comment begins %.30q, want %q", dir, got[0], want)
		}
	}
}

// outsideCmd says what to do where pkg uses what belongs in cmd.
var outsideCmd = map[string]string{
	"os.Exit":         "return an error",
	"log.Fatal":       "return an error",
	"log.Fatalf":      "return an error",
	"log.SetOutput":   "take a *slog.Logger",
	"slog.SetDefault": "take a *slog.Logger",
	"os.Stdout":       "take an io.Writer",
	"fmt.Print":       "take an io.Writer and use fmt.Fprint",
	"fmt.Printf":      "take an io.Writer and use fmt.Fprintf",
	"fmt.Println":     "take an io.Writer and use fmt.Fprintln",
}

func TestWhatBelongsInCmd(t *testing.T) {
	repo := read(t)
	for _, f := range repo.goFiles(func(f *file) bool { return strings.HasPrefix(f.path, "pkg/") && !f.test() }) {
		forEachSelector(f, func(sel *ast.SelectorExpr, name string) {
			if instead, ok := outsideCmd[name]; ok {
				path, line := repo.at(f, sel)
				t.Errorf("%s:%d: %s belongs in cmd; %s", path, line, name, instead)
			}
		})
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	repo := read(t)
	for _, f := range repo.goFiles((*file).test) {
		forEachSelector(f, func(sel *ast.SelectorExpr, name string) {
			if name == "time.Sleep" {
				path, line := repo.at(f, sel)
				t.Errorf("%s:%d: a sleep is too long or too short; let the target print a marker and wait for it (testutil.Target.WaitLine), or use testing/synctest", path, line)
			}
		})
	}
}

// forEachSelector calls f for each expression of the form x.y, as "x.y".
func forEachSelector(file *file, f func(sel *ast.SelectorExpr, name string)) {
	ast.Inspect(file.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				f(sel, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
}

func TestNoInitFunctions(t *testing.T) {
	repo := read(t)
	for _, f := range repo.goFiles(func(f *file) bool { return !f.test() }) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				path, line := repo.at(f, fn)
				t.Errorf("%s:%d: init runs in every program that imports the package; construct what is needed where it is needed", path, line)
			}
		}
	}
}

// Functions are kept short enough to be seen whole; the style's "about 60" with
// room for a table or a long switch.
const maxFunctionLines = 75

func TestFunctionSizes(t *testing.T) {
	repo := read(t)
	for _, f := range repo.goFiles(func(f *file) bool { return !f.test() }) {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := repo.fset.Position(fn.End()).Line - repo.fset.Position(fn.Pos()).Line + 1
			if n > maxFunctionLines {
				path, line := repo.at(f, fn)
				t.Errorf("%s:%d: %s has %d lines, want at most %d; split it by step", path, line, fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

// Messages begin with what was being done, "opening %q: %w", so that a chain of
// them reads as one sentence.
func TestErrorWording(t *testing.T) {
	weak := regexp.MustCompile(`(?i)^(failed|unable|could not|couldn't|error) `)
	repo := read(t)
	for _, f := range repo.goFiles(func(f *file) bool { return !f.test() }) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || (sel.Sel.Name != "Errorf" && sel.Sel.Name != "New") {
				return true
			}
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			message, err := strconv.Unquote(lit.Value)
			if err == nil && weak.MatchString(message) {
				path, line := repo.at(f, lit)
				t.Errorf("%s:%d: %q: begin with the deed, as in \"opening %%q: %%w\"", path, line, message)
			}
			return true
		})
	}
}
