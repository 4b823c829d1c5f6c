package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing in a file that cannot be used. Path is the field; "" is the whole document.
type Problem struct {
	File         string
	Line, Column int
	Path, Text   string
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, strings.TrimPrefix(p.Path+": "+p.Text, ": "))
}

// Problems of one file.
type Problems []Problem

// Error has a line for each of at most 50 problems, by position.
func (all Problems) Error() string {
	const most = 50
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Text, b.Text))
	})
	var lines []string
	for _, p := range sorted[:min(len(sorted), most)] {
		lines = append(lines, p.Error())
	}
	if more := len(sorted) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more problems", more))
	}
	return strings.Join(lines, "\n")
}

// Err returns nil where nothing is wrong.
func (all Problems) Err() error {
	if len(all) == 0 {
		return nil
	}
	return all
}
