package main

import (
	"strings"
	"testing"
)

func TestEveryFileIsComplete(t *testing.T) {
	t.Parallel()
	if len(names()) < 10 {
		t.Fatalf("got %d files", len(names()))
	}
	for _, name := range names() {
		if _, err := read(name); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileIsPrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(&out, []string{"capacity"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## How many more fit\n", "```\ngo test -tags nomsgpack ./internal/sched/app", "2 cores at a load of 7 to 11",
		"| Pod | Pods that fit |", "| 8 exclusive CPUs and a GPU | 38,346 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if err := run(&out, []string{"nothing"}); err == nil || !strings.Contains(err.Error(), "use agent, ") {
		t.Errorf("a file that does not exist: %v", err)
	}
}
