package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"unicode/utf8"
)

const (
	columns    = 120
	tab        = 4 // columns of a tab
	statements = 2 // in a block of one line
)

func lines(file string, content []byte) []hit {
	if !strings.HasSuffix(file, ".go") {
		return nil
	}
	var hits []hit
	for i, line := range strings.Split(string(content), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "// +kubebuilder:") {
			continue // a marker has no way to continue on the next line
		}
		if n := utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t"); n > columns {
			hits = append(hits, hit{file, i + 1, fmt.Sprintf("%d columns", n)})
		}
	}
	return append(hits, joined(file, content)...)
}

// joined finds blocks of one line that hold too many statements.
func joined(file string, content []byte) []hit {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, content, parser.SkipObjectResolution)
	if err != nil {
		return []hit{{file, 1, err.Error()}}
	}
	var hits []hit
	ast.Inspect(parsed, func(n ast.Node) bool {
		if b, ok := n.(*ast.BlockStmt); ok && len(b.List) > statements &&
			set.Position(b.Lbrace).Line == set.Position(b.Rbrace).Line {
			hits = append(hits, hit{
				file, set.Position(b.Lbrace).Line,
				fmt.Sprintf("%d statements on one line", len(b.List)),
			})
		}
		return true
	})
	return hits
}
