package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrapLosesNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"short":                   {"short"},
		"  an indent is kept":     {"  an", "indent is", "kept"},
		"two words more":          {"two words", "more"},
		"0-15,20-79,84-127":       {"0-15,", "20-79,", "84-127"},
		"in /sys/fs/cgroup/a":     {"in", "/sys/fs/", "cgroup/a"},
		"abcdefghijklmnopqrst uv": {"abcdefghij", "klmnopqrst", "uv"},
	} {
		if diff := cmp.Diff(want, Wrap(text, " ", 10)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if got := Wrap(strings.Repeat("a ", 99), " ", 0); len(got) != 1 {
		t.Errorf("an unlimited width has %d lines", len(got))
	}
}

func TestADiagnosisIsWrappedBelowItsTexts(t *testing.T) {
	t.Parallel()
	d := NewDiagnosis("machine /", []Finding{{
		Check: "cgroup", Status: CheckWarn, Found: "version 1 of cgroups", Where: "/sys/fs/cgroup/cpuset",
		Why: "kubelets do not start on it", Remedy: "boot with v2: command --of-many-words",
	}})
	var b strings.Builder
	if err := d.Print(&b, 40); err != nil {
		t.Fatal(err)
	}
	const want = "machine /\n" +
		"warn    cgroup  version 1 of cgroups\n" +
		"                (/sys/fs/cgroup/cpuset)\n" +
		"                why kubelets do not\n" +
		"                    start on it\n" +
		"                do  boot with v2: command --of-many-words\n" +
		"0 ok, 0 unknown, 1 warn, 0 fail\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
