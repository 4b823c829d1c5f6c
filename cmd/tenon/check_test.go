package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/config/runtimeproxy"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/nearest"
	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/testkit"
)

// check runs the verb, and returns what it prints.
func check(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, warnings bytes.Buffer
	c := cli.NewCheck(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &warnings}, checks())
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String() + warnings.String(), err
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.yaml")
	testkit.Check(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestTheSamplesHaveEveryField, and the components accept them.
func TestTheSamplesHaveEveryField(t *testing.T) {
	reference := filepath.Join("..", "..", "docs", "reference")
	for name, argsType := range map[string]reflect.Type{
		"agent-config.yaml":     reflect.TypeFor[v1alpha1.AgentConfiguration](),
		"manager-config.yaml":   reflect.TypeFor[v1alpha1.ManagerConfiguration](),
		"scheduler-config.yaml": reflect.TypeFor[struct{}](), // kube-scheduler's own fields are many

		"runtime-proxy-config.yaml": reflect.TypeFor[runtimeproxy.Configuration](),
		"descheduler-config.yaml":   reflect.TypeFor[struct{}](), // its own package holds both to their fields
		"descheduler-policy.yaml":   reflect.TypeFor[struct{}](),
	} {
		file := filepath.Join(reference, name)
		if out, err := check(t, "config", file); err != nil || !strings.HasSuffix(out, "ok\n") {
			t.Errorf("%s: %v %s", name, err, out)
		}
		text, err := os.ReadFile(file)
		testkit.Check(t, err)
		for field := range nearest.Fields(argsType) {
			if !strings.Contains(string(text), "\n"+field+":") {
				t.Errorf("%s lacks %s", name, field)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	const agent = "apiVersion: config.tenon.sh/v1alpha1\nkind: AgentConfiguration\n"
	values := write(t, `{"type":"object","additionalProperties":false,"properties":{"scheduler":{"type":"object",`+
		`"additionalProperties":false,"properties":{"replicas":{"type":"integer","minimum":0}}}}}`)
	for name, c := range map[string]struct {
		what, text string
		more       []string
		want       string // in the error, or without one in the output
		good       bool
		once       bool // want occurs once
	}{
		"two documents, each wrong": {
			what: "config", text: agent + "resnyc: 1s\n---\n" + agent + "kubelett: a\n",
			want: "file.yaml:7:1: kubelett: unknown field",
		},
		"a kind that configures nothing": {
			what: "config", text: "kind: Pod\n",
			want: `"Pod" is not a configuration file: use AgentConfiguration, DeschedulerConfiguration, ` +
				`DeschedulerPolicy, KubeSchedulerConfiguration, ManagerConfiguration`,
		},
		"a runtime proxy's file": {
			what: "config", text: "apiVersion: config.tenon.sh/v1alpha1\nkind: RuntimeProxyConfiguration\n" +
				"runtime: localhost:1\nlisten: /run/containerd/containerd.sock\n",
			want: `file.yaml:3:1: runtime: --runtime: "localhost:1": want the absolute path of a unix socket`,
		},
		"a descheduler's file": {
			what: "config", text: "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n" +
				"deschedulingInterval: 0s\n",
			want: "file.yaml:3:1: deschedulingInterval: 0s is not allowed: use a number from 1s on",
		},
		"a value without effect": {
			what: "config", good: true, text: "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n" +
				"evictionFailureEventNotification: true\n",
			want: "file.yaml:3:1: evictionFailureEventNotification: has no effect",
		},
		"the settings of a descheduler": {
			what: "config", more: []string{"--effective"}, good: true, want: "deschedulingInterval       5m",
			text: "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 5m\n",
		},
		"the settings in force": {
			what: "config", text: agent + "resync: 5s\n", more: []string{"--effective"}, good: true,
			want: "file.yaml:3\n",
		},
		"the settings of a scheduler": {
			what: "config", more: []string{"--effective"}, good: true, want: "parallelism",
			text: "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 8\n",
		},
		"values that the schema allows": {
			what: "values", text: "scheduler: {replicas: 2}\n", more: []string{"--schema", values}, good: true,
			want: "ok",
		},
		"values that it refuses": {
			what: "values", text: "scheduler:\n  replicas: two\n  replica: 1\n", more: []string{"--schema", values},
			want: "file.yaml:2:3: scheduler.replicas: must be of type integer",
		},
		"values with a rule of workloads that is refused": {
			what: "values", more: []string{"--schema", values},
			text: "manager:\n  workloads:\n    rules:\n    - {kind: K, versions: [v1], default: Maybe}\n",
			want: `manager.workloads.rules[0].default: "Maybe" is not allowed: use Grouped, Never, Parent`,
		},
		"no schema": {
			what: "values", text: "a: 1\n", more: []string{"--schema", "/does/not/exist"},
			want: "--schema: open /does/not/exist",
		},
		"a workload that is refused, once for all its pods": {
			what: "manifest", text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n" +
				"  replicas: 3\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata:\n" +
				"      labels: {a: b, koordinator.sh/qosClass: LSR}\n    spec:\n" +
				"      schedulerName: tenon-scheduler\n" +
				"      containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}, limits: {cpu: 1500m}}}]\n",
			want: "Deployment web: spec.containers[*].resources.requests[cpu]", once: true,
		},
		"a pod that the webhooks refuse": {
			what: "manifest", want: "pod default/p: ",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {koordinator.sh/qosClass: LSR}}\n" +
				"spec: {containers: [{name: c, image: i}]}\n",
		},
		"a manifest that they accept": {
			what: "manifest", good: true, want: "ok",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n",
		},
		"a subject that is none": {what: "pods", text: "", want: "specify config, manifest or values"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := check(t, append([]string{c.what, write(t, c.text)}, c.more...)...)
			if err != nil {
				out = err.Error()
			}
			if n := strings.Count(out, c.want); c.good != (err == nil) || n == 0 || c.once && n > 1 {
				t.Errorf("error %v, want %q in\n%s", err, c.want, out)
			}
		})
	}
}
