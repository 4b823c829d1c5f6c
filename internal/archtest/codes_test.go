package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
)

// produced adds the codes that a file makes reasons of: each mention of a code but where it is compared, or a case.
func produced(file *ast.File, found map[string]bool) {
	consumed := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			consumed[n.X], consumed[n.Y] = true, true
		case *ast.CaseClause:
			for _, e := range n.List {
				consumed[e] = true
			}
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "why" && !consumed[n] {
				found[n.Sel.Name] = true
			}
		}
		return true
	})
}

// TestEachCodeHasAProducer: a documented code that no program gives would be looked for in vain.
func TestEachCodeHasAProducer(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				produced(file, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range why.Registry() {
		if !found[e.Name] {
			t.Errorf("%s: no program gives this code", e.Name)
		}
	}
}

func TestAComparedCodeIsNotProduced(t *testing.T) {
	for source, want := range map[string]bool{
		"return why.Reason{Code: why.NodeName}": true,
		"codes[name] = why.NodeName":            true,
		"return c == why.NodeName":              false,
		"switch c { case why.NodeName: f() }":   false,
		"return c.NodeName":                     false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\nfunc g() { "+source+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		if produced(file, found); found["NodeName"] != want {
			t.Errorf("%s: got %t, want %t", source, found["NodeName"], want)
		}
	}
}
