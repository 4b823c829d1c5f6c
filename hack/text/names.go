package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// private are words that had a meaning in this repository alone, and words that name nothing.
var private = regexp.MustCompile(`(?i)\b(deaf|stir|yielded|gift|twins?|lift|refuge|graft|strangers?|breathes?|` +
	`surprised|nameless|flights|landings?|surround|aside|told|tells|reckoned|nobody|somebody|hears|buried|settle|` +
	`(give|gives|gave|given|take|taken) back)\b`)

// empty are words that say nothing about what they name.
var empty = map[string]bool{"is": true, "of": true, "by": true}

// names finds what a file of Go declares under a private word, be it a part of a name.
func names(file string, content []byte) []hit {
	if !strings.HasSuffix(file, ".go") || strings.HasPrefix(file, "hack/text/") {
		return nil
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, content, parser.SkipObjectResolution)
	if err != nil {
		return []hit{{file, 1, err.Error()}}
	}
	var hits []hit
	check := func(names ...*ast.Ident) {
		for _, n := range names {
			if n != nil && (empty[n.Name] || private.MatchString(camel.ReplaceAllString(n.Name, "$1 $2"))) {
				hits = append(hits, hit{file, set.Position(n.Pos()).Line, n.Name})
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			check(d.Name)
		case *ast.TypeSpec:
			check(d.Name)
		case *ast.ValueSpec:
			check(d.Names...)
		case *ast.Field:
			check(d.Names...)
		case *ast.AssignStmt:
			if d.Tok == token.DEFINE {
				check(idents(d.Lhs...)...)
			}
		case *ast.RangeStmt:
			if d.Tok == token.DEFINE {
				check(idents(d.Key, d.Value)...)
			}
		}
		return true
	})
	return hits
}

// idents returns the expressions that are plain names.
func idents(list ...ast.Expr) []*ast.Ident {
	var out []*ast.Ident
	for _, e := range list {
		if n, ok := e.(*ast.Ident); ok {
			out = append(out, n)
		}
	}
	return out
}
