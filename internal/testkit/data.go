package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// RepoRoot returns the folder with go.mod.
func RepoRoot(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			tb.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
}

// SharedData returns a folder of the data that tests share: TENON_SHARED_DATA, else shared/data beside the repository.
// Where it is absent the test says NOT RUN and is skipped.
func SharedData(tb testing.TB, name string) string {
	tb.Helper()
	base := os.Getenv("TENON_SHARED_DATA")
	if base == "" {
		base = filepath.Join(filepath.Dir(RepoRoot(tb)), "shared", "data")
	}
	dir := filepath.Join(base, name)
	if _, err := os.Stat(dir); err != nil {
		text := fmt.Sprintf("NOT RUN: %s: shared data %q is absent (set TENON_SHARED_DATA)", tb.Name(), name)
		fmt.Println(text) //nolint:forbidigo // seen without -v
		tb.Skip(text)
	}
	return dir
}

// Captures returns the paths of the captured machines, by name. Where they are absent the test is skipped.
func Captures(tb testing.TB) []string {
	tb.Helper()
	archives, err := filepath.Glob(filepath.Join(SharedData(tb, "machines"), "*.tar.bz2"))
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(archives)
	return archives
}

// CaptureName is an archive's name without folder and suffix.
func CaptureName(archive string) string {
	return strings.TrimSuffix(filepath.Base(archive), ".tar.bz2")
}
