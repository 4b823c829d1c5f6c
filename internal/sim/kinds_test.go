package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/testkit"
)

const kindsPage = `# What becomes of each kind

<!-- Written by the test of internal/sim from deploy/examples/kinds, with -update. -->

Each command shows the gangs of one example. The number after the name of a gang is its minimum; "2 of 3" is a gang of
3 pods that starts with 2. [Objects of operators](workloads.md) has the rules.

Pods of kinds that are not expanded are created by a program that neither command knows. In a cluster, their owners are
followed up to the first kind that is grouped.

| Kind | Default | What becomes of the example | Command |
|---|---|---|---|
`

// become returns what the example of a kind becomes, and the command that shows it.
func become(t *testing.T, file string) (what, command string) {
	t.Helper()
	path, shown := filepath.Join("..", "..", file), "`tenon check manifest "+file+"`"
	var said strings.Builder
	refused, err := Check(t.Context(), []string{path}, nil, &said)
	if err != nil || len(refused) > 0 {
		t.Fatalf("%s: %q, %v", file, refused, err)
	}
	r, _ := simulate(t, oneNode(64), path, "-")
	var gangs []string
	for _, g := range r.Gangs {
		text := fmt.Sprintf("`%s` %d", strings.TrimPrefix(g.Name, "default/"), g.MinMember)
		if g.Members != g.MinMember {
			text += fmt.Sprintf(" of %d", g.Members)
		}
		gangs = append(gangs, text)
	}
	alone := len(r.Pods)
	for _, g := range r.Gangs {
		alone -= g.Members
	}
	for _, p := range r.Pods {
		if p.State != "Scheduled" {
			t.Errorf("%s: pod %s is %s", file, p.Name, p.State)
		}
	}
	switch line, _, isGang := strings.Cut(said.String(), ", by rule "); {
	case isGang:
		_, list, _ := strings.Cut(line, "gangs ")
		said := strings.Split(list, ", ")
		slices.Sort(said)
		if d := cmp.Diff(said, strings.Split(strings.ReplaceAll(strings.Join(gangs, ", "), "`", ""), ", ")); d != "" {
			t.Errorf("%s: the gangs that are said and those that are: %s", file, d)
		}
		what = "gangs " + strings.Join(gangs, ", ")
	case len(gangs) > 0:
		what, shown = "gangs "+strings.Join(gangs, ", "), "`tenon simulate -o json --machine epyc-2s -f "+file+"`"
	case strings.Contains(line, "pods start one by one"):
		return count(alone) + ", one by one unless `tenon.sh/gang-min` asks for a gang", shown
	case alone > 0:
		return count(alone) + ", one by one", "`tenon simulate --machine epyc-2s -f " + file + "`"
	case strings.HasPrefix(line, "ignored: "):
		return "not expanded", shown
	default:
		t.Errorf("%s: %q", file, line)
	}
	if alone > 0 {
		what += "; without a gang: " + count(alone)
		shown = strings.Replace(shown, "check manifest", "simulate --machine epyc-2s -f", 1)
	}
	return what, shown
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprint(pods, " pods")
}

// TestThePageOfKinds writes docs/reference/kinds.md with -update, and compares it: each rule has an example
// and a row, which says what its command shows.
func TestThePageOfKinds(t *testing.T) {
	t.Parallel()
	const folder = "deploy/examples/kinds"
	entries, err := os.ReadDir(filepath.Join("..", "..", folder))
	testkit.Check(t, err)
	unused := map[string]bool{}
	for _, e := range entries {
		unused[folder+"/"+e.Name()] = true
	}
	var page strings.Builder
	page.WriteString(kindsPage)
	row := func(kind, byDefault, file string) {
		what, command := become(t, file)
		delete(unused, file)
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", kind, byDefault, what, command)
	}
	for _, r := range workload.Builtin().Rules() {
		name := strings.ToLower(r.Kind)
		switch r.Group {
		case "batch.volcano.sh":
			name = "volcanojob"
		case "serving.knative.dev":
			name = "knativeservice"
		}
		if r.Kind == "MPIJob" {
			name += "-" + r.Versions[0]
		}
		row(r.Name()+" "+strings.Join(r.Versions, ", "), string(r.Default), folder+"/"+name+".yaml")
	}
	row("Pod with the label `kueue.x-k8s.io/pod-group-name`", "Grouped", folder+"/kueuepods.yaml")
	if len(unused) > 0 {
		t.Errorf("examples of no kind: %v", unused)
	}
	golden(t, "../../../docs/reference/kinds.md", []byte(page.String()))
}
