package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// verdict is what the tests say of a mutant.
type verdict string

const (
	uncompiled verdict = ""           // it does not compile, and does not count
	killed     verdict = "own"        // a test of its own package fails, or does not end
	dependents verdict = "dependents" // only tests of packages that import it do
	survived   verdict = "none"
)

// tester runs tests of packages with one file replaced.
type tester struct {
	root      string
	most      int // packages that import a mutant's
	tags      string
	limit     time.Duration // of a package's tests
	folder    string        // for mutated files
	importing map[string][]string
}

// importers reads which packages of the module import which, in their tests too.
func (j *tester) importers(ctx context.Context) error {
	list := exec.CommandContext(ctx, "go", "list", "-tags", j.tags, "-f",
		`{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./internal/...")
	list.Dir, list.Stderr = j.root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the packages: %w", err)
	}
	j.importing = map[string][]string{}
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		seen := map[string]bool{names[0]: true}
		for _, name := range names[1:] {
			if !seen[name] {
				seen[name] = true
				j.importing[name] = append(j.importing[name], names[0])
			}
		}
	}
	for _, names := range j.importing {
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
	}
	return nil
}

// distance orders packages by how long their tests take and how much else they test: the core's come first.
func distance(name string) int {
	order := []string{"core", "kube", "control", "agent", "desched", "sched"}
	part, _, _ := strings.Cut(strings.TrimPrefix(name, module+"/internal/"), "/")
	if i := slices.Index(order, part); i >= 0 {
		return i
	}
	return len(order)
}

// try returns the verdict on a mutant. n names its files.
func (j *tester) try(ctx context.Context, n int, m mutant) (verdict, error) {
	path := filepath.Join(j.root, m.File)
	source, err := os.ReadFile(path)
	if err != nil {
		return uncompiled, err
	}
	file := filepath.Join(j.folder, fmt.Sprintf("%d.go", n))
	if err := os.WriteFile(file, m.apply(source), 0o600); err != nil {
		return uncompiled, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file}})
	if err != nil {
		return uncompiled, err
	}
	other := filepath.Join(j.folder, fmt.Sprintf("%d.json", n))
	if err := os.WriteFile(other, overlay, 0o600); err != nil {
		return uncompiled, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-tags", j.tags, "-overlay", other, m.Package)
	build.Dir = j.root
	if build.Run() != nil {
		return uncompiled, ctx.Err()
	}
	passed, err := j.test(ctx, other, m.Package)
	if err != nil || !passed {
		return killed, err
	}
	importers := j.importing[m.Package]
	for _, name := range importers[:min(len(importers), j.most)] {
		passed, err := j.test(ctx, other, name)
		if err != nil || !passed {
			return dependents, err
		}
	}
	return survived, nil
}

// test reports whether the tests of a package pass. Tests that do not end have noticed the fault.
func (j *tester) test(ctx context.Context, overlay, name string) (bool, error) {
	test := exec.CommandContext(ctx, "go", "test", "-tags", j.tags, "-vet=off", "-count=1", "-failfast",
		"-timeout", j.limit.String(), "-overlay", overlay, name)
	var out bytes.Buffer
	test.Dir, test.Stdout, test.Stderr = j.root, &out, &out
	err := test.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case !errors.As(err, &exit):
		return false, fmt.Errorf("test %s: %w", name, err)
	case bytes.Contains(out.Bytes(), []byte("[build failed]")):
		return false, fmt.Errorf("test %s: %s", name, out.Bytes())
	}
	return false, nil
}
