package view

import (
	"slices"
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
		"                do  boot with v2:\n" +
		"                    command\n" +
		"                    --of-many-words\n" +
		"0 ok, 0 unknown, 1 warn, 0 fail\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLinesFitATerminal: the second line of each is a continuation, a word that is too wide is whole.
func TestLinesFitATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"short\n":                              "short\n",
		"a line that is too wide\nnext":        "a line that is too\n  wide\nnext",
		"    indented words of a text\n":       "    indented words\n      of a text\n",
		"/sys/fs/cgroup/kubepods/a\n":          "/sys/fs/cgroup/kubepods/a\n",
		"see http://127.0.0.1:80/#t=1 x\n":     "see\n  http://127.0.0.1:80/#t=1\n  x\n",
		"--flag-name  explained\n":             "--flag-name\n  explained\n",
		"blanks at the end        \n":          "blanks at the end        \n",
		"\x1b[1mcoloured, and too wide\x1b[0m": "\x1b[1mcoloured, and too wide\x1b[0m",
	} {
		if diff := cmp.Diff(want, WrapLines(text, 20)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		if got := WrapLines(text, 0); got != text {
			t.Errorf("%q off a terminal: %q", text, got)
		}
	}
}

func TestTheExplanationOfAFlagIsWrappedBelowItself(t *testing.T) {
	t.Parallel()
	const line = "  -f, --file name   file with manifests, or - for standard input\n"
	const want = "  -f, --file name   file with manifests,\n" +
		"                    or - for standard\n                    input\n"
	if diff := cmp.Diff(want, WrapLines(line, 40)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestACommandOfARemedyIsOneForAShell: prose is wrapped without a mark.
func TestACommandOfARemedyIsOneForAShell(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"kubectl label node a b c d=e":        {"kubectl label \\", "node a b c \\", "d=e"},
		"set the mode back to what it was":    {"set the mode", "back to what", "it was"},
		"set it back: nvidia-smi -c DEFAULT":  {"set it back:", "nvidia-smi -c \\", "DEFAULT"},
		"short":                               {"short"},
		"in values: crds: {skip: [a.b, c.d]}": {"in values:", "crds: {skip:", "[a.b, c.d]}"},
	} {
		if diff := cmp.Diff(want, wrapRemedy(text, 15)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestARowOfComponentsFitsATerminal: during an upgrade a component has many versions.
func TestARowOfComponentsFitsATerminal(t *testing.T) {
	t.Parallel()
	s := Status{Components: []Component{{
		Name: "tenon-agent", Ready: 3, Desired: 3,
		Versions: []string{"v0.1.0-12-g0123456789ab", "v0.1.0-13-g123456789abc"},
	}}}
	var b strings.Builder
	if err := s.Print(&b, 50); err != nil {
		t.Fatal(err)
	}
	const want = "tenon-agent      3/3   v0.1.0-12-g0123456789ab,\n" +
		"                       v0.1.0-13-g123456789abc\n"
	if got := b.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestOneThingIsNotMany: texts count one and several, and name one CPU and several.
func TestOneThingIsNotMany(t *testing.T) {
	t.Parallel()
	got := []string{Count(1, "zone"), Count(2, "zone"), CPUs("3"), CPUs("3-4"), CPUs("3,9")}
	if want := []string{"1 zone", "2 zones", "CPU 3", "CPUs 3-4", "CPUs 3,9"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
