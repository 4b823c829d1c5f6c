package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

const source = `package p

import "fmt"

func (s *S[T]) Decide(a, b int) (n int, err error) {
	if a < b && s.ok {
		n = max(a, 2)
		n++
		return n, fmt.Errorf("more than %d", 3+4)
	}
	switch {
	case a == 0:
		panic("zero is " + "refused")
	default:
		s.add(a - b)
	}
	return
}

func (s *S[T]) String() string { return fmt.Sprint(1 + 2) }
`

func TestEachFaultOfAFileIsFound(t *testing.T) {
	t.Parallel()
	found, err := mutants("p", "p.go", []byte(source))
	testkit.Check(t, err)
	var got []string
	for _, m := range found {
		got = append(got, strings.TrimPrefix(m.String(), "p.go:"))
		if s := string(m.apply([]byte(source))); len(s) != len(source)-len(m.Was)+len(m.Becomes) ||
			!strings.HasPrefix(source, s[:m.start]) || !strings.HasSuffix(source, s[m.start+len(m.Becomes):]) {
			t.Errorf("%s: another place of the file differs:\n%s", m, s)
		}
	}
	want := []string{
		"6 S.Decide: `a < b && s.ok` becomes `!(a < b && s.ok)`",
		"6 S.Decide: `<` becomes `<=`",
		"6 S.Decide: `&&` becomes `||`",
		"7 S.Decide: without `n = max(a, 2)`",
		"7 S.Decide: `max` becomes `min`",
		"7 S.Decide: `2` becomes `3`",
		"8 S.Decide: without `n++`",
		"12 S.Decide: without `case a == 0: …`",
		"12 S.Decide: `==` becomes `!=`",
		"12 S.Decide: `0` becomes `1`",
		"15 S.Decide: without `s.add(a - b)`",
		"15 S.Decide: `-` becomes `+`",
		"17 S.Decide: without `return`",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutants (-want +got):\n%s", diff)
	}
}

// TestEachExplanationIsOfAMutant: one that covers none is of a line that has changed since.
func TestEachExplanationIsOfAMutant(t *testing.T) {
	t.Parallel()
	core, others, err := candidates("../..")
	testkit.Check(t, err)
	known, err := explanations()
	testkit.Check(t, err)
	for i := range known {
		e := &known[i]
		if !slices.ContainsFunc(slices.Concat(core, others), e.covers) || e.Why == "" {
			t.Errorf("%s %s: %q of the line %q is explained by %q", e.File, e.Function, e.Was, e.Line, e.Why)
		}
	}
}

func TestAnExplanationIsOfItsLineAlone(t *testing.T) {
	t.Parallel()
	m := mutant{File: "a.go", Function: "f", Text: "if n > 0 {", Was: "0", Becomes: "1"}
	e := explanation{File: "a.go", Function: "f", Line: "if n > 0 {", Was: "0", Becomes: "1", Why: "because"}
	for name, change := range map[string]func(*mutant){
		"file": func(m *mutant) { m.File = "b.go" }, "function": func(m *mutant) { m.Function = "g" },
		"line": func(m *mutant) { m.Text = "if m > 0 {" }, "fault": func(m *mutant) { m.Becomes = "2" },
	} {
		other := m
		if change(&other); e.covers(other) {
			t.Errorf("it excuses a fault of another %s", name)
		}
	}
	if why := explain([]explanation{e}, m); why != "because" {
		t.Errorf("its own mutant is explained by %q", why)
	}
}

// TestAnInterruptedRunNamesWhereToGoOn: with several mutants at once, the first one without a result.
func TestAnInterruptedRunNamesWhereToGoOn(t *testing.T) {
	root := t.TempDir()
	testkit.Check(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module "+module+"\n\ngo 1.24\n"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	drawn := make([]mutant, 9)
	for i := range drawn {
		drawn[i] = mutant{Package: "p", File: fmt.Sprintf("%d.go", i), Was: "x"}
	}
	tried := func(_ context.Context, i int, _ mutant) (verdict, error) {
		switch i {
		case 4: // ends after the ones behind it
			<-ctx.Done()
			return killed, ctx.Err()
		case 6:
			stop()
			return killed, ctx.Err()
		}
		return killed, nil
	}
	results, err := testEach(ctx, options{jobs: 2, from: 10}, drawn, nil, tried, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "stopped at mutant 14: ") || len(results) != 4 {
		t.Errorf("%d results, %v; want 4, and to go on with 14", len(results), err)
	}
}

func TestADrawIsThatOfItsSeed(t *testing.T) {
	t.Parallel()
	list := func(pkg string) (all []mutant) {
		for line := range 40 {
			all = append(all, mutant{Package: pkg, Line: line, Was: fmt.Sprint(line)})
		}
		return all
	}
	first, again, other := draw(list("core"), list("sched"), 1, false), draw(list("core"), list("sched"), 1, false),
		draw(list("core"), list("sched"), 2, false)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Error("a draw does not follow from its seed")
	}
	changed := list("core")
	for i := range changed {
		changed[i].Line += 7 // a line was added above
	}
	if moved := draw(slices.Delete(changed, 3, 4), list("sched"), 1, false); !inOrder(moved, first) {
		t.Error("a change elsewhere draws other mutants")
	}
	inCore := 0
	for _, m := range first[:20] {
		if m.Package == "core" {
			inCore++
		}
	}
	if inCore != 15 {
		t.Errorf("%d of the first 20 are of the core, want 15", inCore)
	}
	if len(first) != 80 {
		t.Errorf("%d of 80 are drawn", len(first))
	}
}

// inOrder reports whether each kind of mutants comes in the order that it has in all, whatever their lines are.
func inOrder(list, all []mutant) bool {
	for _, kind := range []string{"core", "sched"} {
		at := 0
		for _, m := range list {
			if m.Package != kind {
				continue
			}
			next := slices.IndexFunc(all[at:], func(x mutant) bool { return x.Package == kind && x.Was == m.Was })
			if next < 0 {
				return false
			}
			at += next + 1
		}
	}
	return true
}

// TestATestNoticesAFault tests the faults of a module of its own: one that its test notices, one that the test of a
// dependent does, one that none does, and one that does not compile.
func TestATestNoticesAFault(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.24\n",
		"internal/core/a/a.go": `package a

func Of(n int) int {
	if n > 5 {
		n = 6
	}
	return n + 2
}
`,
		"internal/core/a/a_test.go": `package a

import "testing"

func TestOf(t *testing.T) {
	if Of(1) != 3 {
		t.Fail()
	}
}
`,
		"internal/core/b/b_test.go": `package b

import (
	"testing"

	"` + module + `/internal/core/a"
)

func TestOf(t *testing.T) {
	if a.Of(7) != 8 {
		t.Fail()
	}
}
`,
	} {
		path := filepath.Join(root, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(path), 0o750))
		testkit.Check(t, os.WriteFile(path, []byte(text), 0o600))
	}
	text, err := os.ReadFile(filepath.Join(root, "internal/core/a/a.go"))
	testkit.Check(t, err)
	found, err := mutants(module+"/internal/core/a", "internal/core/a/a.go", text)
	testkit.Check(t, err)
	j := &tester{root: root, limit: time.Minute, folder: t.TempDir(), most: 4}
	testkit.Check(t, j.importers(context.Background()))
	got := map[string]verdict{}
	for i, m := range found {
		v, err := j.try(t.Context(), i, m)
		testkit.Check(t, err)
		_, name, _ := strings.Cut(m.String(), "Of: ")
		got[name] = v
	}
	want := map[string]verdict{
		"`n > 5` becomes `!(n > 5)`": killed, "`>` becomes `>=`": survived, "`5` becomes `6`": survived,
		"without `n = 6`": dependents, "`6` becomes `7`": dependents,
		"`+` becomes `-`": killed, "`2` becomes `3`": killed,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}
