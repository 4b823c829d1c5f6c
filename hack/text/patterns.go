package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// pattern is a construction that Kubernetes' own documentation does not use.
type pattern struct {
	bad  *regexp.Regexp
	good string // what to write instead
}

// patterns are checked in texts for users alone: pages, and strings of programs. Comments may still contain them.
var patterns = []pattern{
	{regexp.MustCompile(`(?i)\b(CPUs|devices|memory) of (its|their) own\b`), "exclusive CPUs"},
	{regexp.MustCompile(`\b[Aa]new\b`), "again, recreate"},
	{regexp.MustCompile(`(?i)\bg(ives?|iven|iving|ave) out\b`), "allocate"},
	{regexp.MustCompile(`(?i)\b(agent|manager|scheduler|descheduler) is away\b`), "is down"},
	{regexp.MustCompile(`(?i)\bpods? that waits?\b`), "pending pod"},
	{regexp.MustCompile(`(?i)\bas (always|ever)\b`), "as usual"},
	{regexp.MustCompile(`(?i)\bwhat the kernel has\b`), "the values in the kernel"},
	{regexp.MustCompile(`(?i)\b(goes|go|went|going) on\b`), "continue"},
	{regexp.MustCompile(`(?i)\b(is|are|was|were) looked at\b`), "is checked"},
	{regexp.MustCompile(`(?i)\bthe text (has|names|says)\b`), "the message names"},
	{regexp.MustCompile(`(?i)\bput right\b|\bputs? (it|them) right\b`), "correct"},
	{regexp.MustCompile(`(?i)\b(taken|takes|took|take) (Tenon |it )?off (a|the|all|its) nodes?\b`), "remove from"},
}

// userTexts returns the parts of a file that users read, by line: all lines of a page, and the strings of a program.
func userTexts(file string, content []byte) map[int]string {
	out := map[int]string{}
	switch path.Ext(file) {
	case ".md", ".txt", ".json":
		for i, line := range strings.Split(string(content), "\n") {
			out[i+1] = line
		}
	case ".go":
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "hack/") || strings.HasPrefix(file, "test/") {
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, content, parser.SkipObjectResolution)
		if err != nil {
			return map[int]string{1: err.Error()}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				out[set.Position(lit.Pos()).Line] += lit.Value + "\n"
			}
			return true
		})
	}
	return out
}

// badPatterns finds patterns in the texts that users read.
func badPatterns(file string, content []byte) []hit {
	var hits []hit
	found := userTexts(file, content)
	for _, line := range slices.Sorted(maps.Keys(found)) {
		for _, p := range patterns {
			for _, match := range p.bad.FindAllString(found[line], -1) {
				hits = append(hits, hit{file, line, match + " (write: " + p.good + ")"})
			}
		}
	}
	return hits
}
