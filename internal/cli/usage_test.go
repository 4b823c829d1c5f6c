package cli

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestEveryVerbRefusesExtraArguments gives each verb that reads a cluster more arguments than any verb takes.
func TestEveryVerbRefusesExtraArguments(t *testing.T) {
	t.Parallel()
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	none := func(*cobra.Command, []string) error { return nil }
	other := &cobra.Command{Use: "replay", Args: cobra.ExactArgs(1), RunE: none}
	var verbs [][]string
	for _, verb := range NewRoot("tenon", streams, doctors, other).Commands() {
		switch verb.Name() {
		case "completion", "help", "version", "whatif": // whatif takes any number of pods
			continue
		}
		verbs = append(verbs, []string{verb.Name()})
		for _, below := range verb.Commands() {
			verbs = append(verbs, []string{verb.Name(), below.Name()})
		}
	}
	for _, verb := range verbs {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		args := slices.Concat(verb,
			[]string{"a", "b", "c", "--kubeconfig", kubeconfig(t, "http://127.0.0.1:1")})
		if verb[0] == other.Name() {
			args = args[:len(args)-2]
		}
		code := Run(t.Context(), NewRoot("tenon", streams, doctors, other), args, errOut)
		if code != ExitUsage {
			t.Errorf("%s: exit code %d, want %d: %s", strings.Join(args, " "), code, ExitUsage, errOut)
		}
	}
}

func TestComponentsRefuseQuestions(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		http.StatusBadRequest: ExitUsage, http.StatusNotFound: ExitUsage, http.StatusUnprocessableEntity: ExitUsage,
		http.StatusForbidden: ExitUnreachable, http.StatusUnauthorized: ExitUnreachable,
		http.StatusInternalServerError: ExitUnexpected,
	} {
		refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"message": "pod default/none does not exist"}`))
		}))
		code, _, errOut := run(t, "tenon", "make-room", "pod/none", "--dry-run", "--descheduler", refusing.URL,
			"--kubeconfig", kubeconfig(t, "http://127.0.0.1:1"))
		if code != want || !strings.Contains(errOut, "pod default/none does not exist") {
			t.Errorf("status %d: exit code %d, want %d: %s", status, code, want, errOut)
		}
		refusing.Close()
	}
}

func TestNamespaces(t *testing.T) {
	nodes, pods, topologies := example(t)
	other := pod("elsewhere", "", "1", "epyc", "")
	other.Namespace = "ml"
	server := kubeconfig(t, apiServer(t, nodes, append(pods, other), topologies).URL)
	for name, c := range map[string]struct {
		args     string
		code     int
		out, not string // out is in the output or in the error, not is in neither
	}{
		"the pods of one":           {"top pods -n ml", ExitOK, "ml/elsewhere", "default/"},
		"the pods of all":           {"top pods -A", ExitOK, "default/web", ""},
		"the pods of all, as usual": {"top pods", ExitOK, "ml/elsewhere", ""},
		"nodes have none": {
			"top -n ml", ExitUsage, "--namespace is not allowed: tenon top shows objects of the whole cluster", "",
		},
		"nor has a topology": {"topology -n ml", ExitUsage, "tenon topology shows objects of the whole cluster", ""},
		"nor have quotas":    {"quota -n ml", ExitUsage, "--namespace is not allowed", ""},
		"nor have jobs that move pods": {
			"evictions -n ml", ExitUsage, "--namespace is not allowed: tenon evictions", "",
		},
		"evicted pods have":          {"evictions --past -n ml", ExitUnreachable, "", "--namespace is not allowed"},
		"gangs have":                 {"gang -n ml", ExitOK, "no pod is in a gang", ""},
		"one that does not exist":    {"explain -n m1", ExitUsage, `namespace "m1" not found, did you mean "ml"?`, ""},
		"it, with a pod":             {"explain pod/a -n nowhere", ExitUsage, `namespace "nowhere" not found`, ""},
		"one that may not be listed": {"explain -n locked", ExitUnreachable, "cannot list pods", "not found"},
		"one, and all":               {"top pods -n ml -A", ExitUsage, "exclude each other", ""},
		"a name, and all":            {"explain pod/web -A", ExitUsage, "-A and a name exclude each other", ""},
		"all, where a verb has none": {"topology -A", ExitUsage, "unknown shorthand flag", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(t, "tenon", append(strings.Fields(c.args), "--kubeconfig", server)...)
			text := out + errOut
			if code != c.code && !strings.Contains(c.args, "--past") || !strings.Contains(text, c.out) ||
				c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("exit code %d, want %d with %q and without %q:\n%s", code, c.code, c.out, c.not, text)
			}
		})
	}
}

func TestNarrowTablesFold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		table columns
		rows  [][]any
		want  string
	}{
		"numbers continue below": {
			columns{width: 20, right: 3},
			[][]any{{"NODE", "CPU", "REQUESTED", "USED", "P95"}, {"epyc-2s-0", 128, "12345m", 7, "-"}},
			"NODE       CPU\nepyc-2s-0  128\n\nNODE       REQUESTED\nepyc-2s-0     12345m\n\n" +
				"NODE       USED  P95\nepyc-2s-0     7  -\n",
		},
		"each part repeats the keys": {
			columns{width: 18, right: 4, keys: 2},
			[][]any{{"NODE", "NUMA", "CPUS", "FREE", "CORES"}, {"n", 0, 8, 4, 2}},
			"NODE  NUMA  CPUS\nn        0     8\n\nNODE  NUMA  FREE\nn        0     4\n\n" +
				"NODE  NUMA  CORES\nn        0      2\n",
		},
		"divided before its second half": {
			columns{width: 30, parts: []int{3}},
			[][]any{{"NODE", "CPU", "USED", "MEMORY", "USED", "REPORT"}, {"n", 8, 1, "8Gi", "1Gi", "4s"}},
			"NODE  CPU  USED\nn     8    1\n\nNODE  MEMORY  USED  REPORT\nn     8Gi     1Gi   4s\n",
		},
		"a text is wrapped beside the rest": {
			columns{width: 40},
			[][]any{{"GANG", "STATE", "MESSAGE"}, {"a", "Waits", "2 of 3 members exist, more are needed"}},
			"GANG  STATE  MESSAGE\na     Waits  2 of 3 members exist, more\n             are needed\n",
		},
		"a text with too little room continues below": {
			columns{width: 30},
			[][]any{
				{"GANG", "STATE", "AGE", "CREATED", "MESSAGE"},
				{"a", "Waits", "4m50s", "yes", "2 of 3 members, so it waits"},
			},
			"GANG  STATE  AGE    CREATED\na     Waits  4m50s  yes\n\nGANG  MESSAGE\na     2 of 3 members, so it\n" +
				"      waits\n",
		},
		"headings without a value are left out": {
			columns{width: 12},
			[][]any{{"GANG", "STATE", "MESSAGE"}, {"a", "Bound", ""}},
			"GANG  STATE\na     Bound\n",
		},
		"all fits": {columns{width: 10}, [][]any{{"A", "B"}, {"1", "2 3"}}, "A  B\n1  2 3\n"},
	} {
		for _, row := range tt.rows {
			tt.table.add(row...)
		}
		if diff := cmp.Diff(tt.want, tt.table.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	below := columns{width: 40, indent: "  "}
	below.add("pci0000:10", "gpu 0", "██████████", "default/notebook-a 60%, default/notebook-b 40%")
	want := [][]string{{
		"  pci0000:10  gpu 0  ██████████", "      default/notebook-a 60%,", "      default/notebook-b 40%",
	}}
	if diff := cmp.Diff(want, below.lines()); diff != "" {
		t.Errorf("a row whose text has too little room (-want +got):\n%s", diff)
	}
	nodes, pods, topologies := example(t)
	a := newAccount(nodes, pods, topologies)
	for _, what := range []string{"cpu", "numa"} {
		var wideOut, narrow strings.Builder
		for out, width := range map[*strings.Builder]int{&wideOut: 0, &narrow: 40} {
			if err := printTop(out, a, what, "table", width); err != nil {
				t.Fatal(err)
			}
		}
		for _, word := range strings.Fields(wideOut.String()) {
			if !strings.Contains(narrow.String(), word) {
				t.Errorf("top %s with 40 columns has no %q:\n%s", what, word, narrow.String())
			}
		}
		for line := range strings.Lines(narrow.String()) {
			if len(strings.TrimRight(line, "\n")) > 40 {
				t.Errorf("top %s: line %q is wider than 40 columns", what, line)
			}
		}
	}
}
