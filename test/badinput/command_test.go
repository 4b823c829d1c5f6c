package badinput

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/local/verb"
)

func commandCases() []bad {
	up := func(args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			return commandFails(t, dir, cli.ExitUsage,
				append([]string{"up", "--data", filepath.Join(dir, "data")}, args...)...)
		}
	}
	reads := func(args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return commandFails(t, t.TempDir(), cli.ExitUsage, args...)
		}
	}
	return []bad{
		{
			"up: a machine that does not exist", up("--machine", "epic-2s"),
			[]string{`"epic-2s"`, "Did you mean epyc-2s?"},
		},
		{
			"up: a kubelet setting that does not exist", up("--machine", "epyc-2s@statik"),
			[]string{"statik", "Did you mean static?"},
		},
		{
			"up: a count that is not a number", up("--machine", "epyc-2s=many"),
			[]string{`count "many"`, "from 1 to 10000"},
		},
		{"up: a negative number of nodes", up("--nodes", "-1"), []string{"number of nodes -1", "want 1 to 10000"}},
		{
			"up: more schedulers than have ports", up("--schedulers", "9"),
			[]string{"--schedulers: 9 is not allowed", "use 1 to 3"},
		},
		{
			"up: a configuration of the descheduler that does not exist", up("--descheduler-config", "/none.yaml"),
			[]string{"open /none.yaml: no such file"},
		},
		{"up: a flag that does not exist", up("--machines", "epyc-2s"), []string{"unknown flag: --machines"}},
		{"down: a folder that holds no cluster", func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "thesis.tex"), "ten years of work")
			return commandFails(t, dir, -1, "down", "--purge", "--data", dir)
		}, []string{"is not a data folder of tenon", "nothing was removed"}},
		{
			"a verb that does not exist", reads("explian"),
			[]string{`unknown command "explian"`, `did you mean "explain"?`},
		},
		{
			"explain: a kind that it does not know", reads("explain", "widget/g"),
			[]string{`unknown kind in "widget/g"`, "use pod"},
		},
		{
			"explain: a format that does not exist", reads("explain", "p", "-o", "xml"),
			[]string{"-o xml is not allowed", "table, wide, name, json, yaml, jsonpath=TEMPLATE"},
		},
		{
			"topology: a colour that does not exist", reads("topology", "--color", "red"),
			[]string{"--color red is not allowed", "auto, always, never"},
		},
		{
			"top: a subject that does not exist", reads("top", "num"),
			[]string{`cannot show "num"`, `did you mean "numa"?`, "use cpu, numa, gpu, nodes or pods"},
		},
		{"explain: a cluster that is not there", func(t *testing.T) string {
			t.Helper()
			return commandFails(t, t.TempDir(), cli.ExitUnreachable, "explain", "p", "--server", "http://127.0.0.1:1")
		}, []string{"127.0.0.1:1", "is the cluster running?"}},
	}
}

// commandFails runs tenon and wants the exit code, nothing on standard output, and the folder as it is. A code of -1 is
// any but 0.
func commandFails(t *testing.T, dir string, code int, args ...string) (answer string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	unchanged(t, dir, func() {
		var out, errOut bytes.Buffer
		root := cli.NewRoot("tenon", genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
			cli.Doctor{}, verb.Commands(cli.Doctor{}.StartConsole)...)
		got := cli.Run(t.Context(), root, args, &errOut)
		if got != code && (code != -1 || got == cli.ExitOK) {
			t.Errorf("exit code %d, want %d", got, code)
		}
		if out.Len() > 0 {
			t.Errorf("standard output has %s", out.String())
		}
		answer = errOut.String()
	})
	return answer
}

// machineTopology is the published object of a machine of four CPUs.
func machineTopology(t *testing.T) *v1alpha2.NodeResourceTopology {
	t.Helper()
	o := &v1alpha2.NodeResourceTopology{}
	o.Annotations = map[string]string{annotation.CPUTopology: fourCPUs}
	return o
}
