package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// targets are the variables of the Makefile that list packages to test. Each package with tests is in one of them.
var targets = []string{"UNIT", "SYSTEM", "UNCACHED", "CLUSTERS", "CHART"}

// patterns returns the values of a Makefile's variables, by name.
func patterns(makefile string) map[string][]string {
	values := map[string][]string{}
	makefile = strings.ReplaceAll(makefile, "\\\n", " ")
	for line := range strings.Lines(makefile) {
		if name, value, ok := strings.Cut(line, ":="); ok {
			values[strings.TrimSpace(name)] = strings.Fields(value)
		}
	}
	return values
}

// matches reports whether a pattern, such as ./internal/core/..., names a folder.
func matches(pattern, folder string) bool {
	pattern = strings.TrimPrefix(pattern, "./")
	if parent, all := strings.CutSuffix(pattern, "/..."); all {
		return below(folder, parent)
	}
	return folder == pattern
}

// unlistedTargets returns the folders that are not in exactly one target, and the patterns that match none of them.
func unlistedTargets(values map[string][]string, folders []string) (bad []string) {
	used := map[string]bool{}
	for _, folder := range folders {
		var found []string
		for _, target := range targets {
			for _, pattern := range values[target] {
				if matches(pattern, folder) {
					found, used[pattern] = append(found, target), true
				}
			}
		}
		if len(found) != 1 {
			bad = append(bad, fmt.Sprintf("the tests of %s run in %v, want one target", folder, found))
		}
	}
	for _, target := range targets {
		for _, pattern := range values[target] {
			if !used[pattern] {
				bad = append(bad, fmt.Sprintf("%s of %s has no tests", pattern, target))
			}
		}
	}
	return bad
}

func readTargets(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	return patterns(string(text))
}

// Tests that no target runs protect no one.
func TestEachPackageIsTestedByOneTarget(t *testing.T) {
	var folders []string
	for importPath, p := range load(t) {
		if folder, ours := folderOf(importPath); ours && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	for _, v := range unlistedTargets(readTargets(t), folders) {
		t.Error(v)
	}
	found := unlistedTargets(patterns("UNIT := ./a/... \\\n  ./b\nSYSTEM := ./a/c ./e\n"),
		[]string{"a", "a/c", "b", "b/d"})
	want := []string{
		"the tests of a/c run in [UNIT SYSTEM], want one target", "the tests of b/d run in [], want one target",
		"./e of SYSTEM has no tests",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
}
