package badinput

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/local/verb"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/testkit"
)

func simulateCases() []bad {
	in := func(text string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "in.yaml"), text)
			return simulateFails(t, dir, "-f", filepath.Join(dir, "in.yaml"))
		}
	}
	args := func(args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return simulateFails(t, t.TempDir(), args...)
		}
	}
	pod := func(rest string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]" + rest + "}}"
	}
	return []bad{
		{"simulate: broken YAML", in("a: ["), []string{"in.yaml: document 1", "line 1"}},
		{"simulate: a key that stands twice", in("a: 1\na: 2"), []string{"in.yaml: document 1", `key "a" already set`}},
		{
			"simulate: a list instead of an object", in("[1, 2]"),
			[]string{"in.yaml: document 1", "this is not a Kubernetes object"},
		},
		{"simulate: an object without a kind", in("{apiVersion: v1}"), []string{"document 1: kind: Required value"}},
		{
			"simulate: a kind that does not exist", in("{apiVersion: apps/v1, kind: Deploymnet, metadata: {name: a}}"),
			[]string{"document 1 (Deploymnet a)", "kind: Deploymnet (apps/v1) is not known"},
		},
		{
			"simulate: a kind whose feature is not built",
			in("{apiVersion: scheduling.k8s.io/v1beta1, kind: Workload, metadata: {name: r}}"),
			[]string{"document 1 (Workload r)", "is not supported yet: it is about templates of PodGroups"},
		},
		{
			"simulate: a job that names no pod",
			in("{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: PodMigrationJob, metadata: {name: r}}"),
			[]string{"document 1 (PodMigrationJob r)", "spec.podRef: must be set: the namespace and name of a pod"},
		},
		{
			"simulate: a reservation that every pod could use",
			in("{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, metadata: {name: r}, " +
				"spec: {template: {spec: {containers: [{name: c, image: i}]}}, owners: [{labelSelector: {}}]}}"),
			[]string{"document 1 (Reservation r)", "spec.owners[0].labelSelector", "must not be empty"},
		},
		{
			"simulate: a field that does not exist, in the second document",
			in(pod("") + "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containerz: []}}"),
			[]string{"document 2 (Pod b)", `unknown field "spec.containerz"`},
		},
		{"simulate: a text for a number", in(pod(", priority: high")), []string{"document 1 (Pod a)", "spec.priority"}},
		{
			"simulate: a negative amount",
			in(
				"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: " +
					"{requests: {cpu: -1}}}]}}"),
			[]string{"spec.containers[0].resources.requests[cpu]: Invalid value"},
		},
		{
			"simulate: the same pod twice", in(pod("") + "\n---\n" + pod("")),
			[]string{"document 2 (Pod a)", `metadata.name: Duplicate value "a"`, "document 1"},
		},
		{
			"simulate: a list inside of a list",
			in("{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: []}]}"),
			[]string{"document 1, item 1", "inside of a list is not allowed"},
		},
		{
			"simulate: more replicas than any cluster has",
			in(
				"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: d}, spec: {replicas: 2000000000, selector: " +
					"{matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, " +
					"image: i}]}}}}"),
			[]string{"2000000000 replicas are too many", "at most 200000"},
		},
		{"simulate: a file that is not there", args("-f", "/does/not/exist.yaml"), []string{"/does/not/exist.yaml"}},
		{
			"simulate: a machine that is not a preset", args("--machine", "epyc-3s"),
			[]string{"--machine", `"epyc-3s" is not a preset (epyc-2s,`, "Did you mean epyc-2s?"},
		},
		{
			"simulate: a number of machines that is not allowed", args("--machine", "epyc-2s=0"),
			[]string{"--machine", `count "0": want a number from 1 to 10000`},
		},
		{
			"simulate: a setting of a machine that does not exist", args("--machine", "epyc-2s@statik"),
			[]string{"--machine", "statik", "Did you mean static?"},
		},
		{"simulate: nothing to read", args(), []string{"give files or folders with -f"}},
		{
			"simulate: a format that does not exist", args("-f", "-", "-o", "xml"),
			[]string{"-o xml is not allowed", "table, json, yaml"},
		},
	}
}

// simulateFails wants the verb to end as bad input does, with no half answer, and the folder to be unchanged.
func simulateFails(t *testing.T, dir string, args ...string) (answer string) {
	t.Helper()
	unchanged(t, dir, func() {
		var out, errOut bytes.Buffer
		c := sim.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
			sim.Machines{Objects: verb.MachineObjects})
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append([]string{}, args...)) // cobra takes nil for the process's own
		err := c.ExecuteContext(t.Context())
		var code interface{ ExitCode() int }
		if !errors.As(err, &code) || code.ExitCode() != 2 {
			t.Fatalf("got %v, want an error with exit code 2", err)
		}
		if out.Len() > 0 {
			t.Errorf("an answer is printed: %s", out.String())
		}
		answer = err.Error()
	})
	return answer
}

// simulated runs manifests and returns the result.
func simulated(t *testing.T, manifests string) (r sim.Result, warnings string) {
	t.Helper()
	var warn strings.Builder
	r, err := sim.Run(t.Context(), sim.Input{
		Paths: []string{"-"}, Stdin: strings.NewReader(manifests), Warn: &warn,
	})
	testkit.Check(t, err)
	return r, warn.String()
}

// allFree fails the test unless every CPU of every node is still in the shared pools, and no annotation was written.
func allFree(t *testing.T, r sim.Result, want string) {
	t.Helper()
	for _, p := range r.Pods {
		if p.Node != "" || p.CPUSet != "" || len(p.Annotations) > 0 {
			t.Errorf("pod %s holds something: %+v", p.Name, p)
		}
	}
	for _, n := range r.Nodes {
		text, err := json.Marshal(n.SharedPools)
		testkit.Check(t, err)
		if string(text) != want {
			t.Errorf("shared pools of %s are %s, want %s", n.Name, text, want)
		}
	}
}
