package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files")

// simulate runs on the given files and on standard input.
func simulate(t *testing.T, in string, paths ...string) (Result, string) {
	t.Helper()
	var warn strings.Builder
	r, err := Run(t.Context(), Input{Paths: paths, Stdin: strings.NewReader(in), Warn: &warn})
	if err != nil {
		t.Fatalf("Run(%v): %v", paths, err)
	}
	return r, warn.String()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		testkit.Check(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	testkit.Check(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func printed(t *testing.T, r Result, format string) []byte {
	t.Helper()
	var out bytes.Buffer
	testkit.Check(t, Print(&out, r, format))
	return out.Bytes()
}

func TestNodesThatVolcanoDescribesAsGolden(t *testing.T) {
	r, warn := simulate(t, "", "testdata/volcano")
	golden(t, "volcano.json", printed(t, r, "json"))
	golden(t, "volcano.txt", printed(t, r, "table"))
	if warn != "" {
		t.Errorf("warnings:\n%s", warn)
	}
}

func TestNumatopologiesThatCannotBeUsed(t *testing.T) {
	const object = "apiVersion: nodeinfo.volcano.sh/v1alpha1\nkind: Numatopology\n"
	const lsr = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {volcano.sh/numa-topology-policy: " +
		"restricted}}\n" +
		"spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Gi}}}]}\n"
	const other = "apiVersion: v1\nkind: Pod\nmetadata: {name: q}\nspec: {containers: [{name: c, image: i}]}\n"
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus: {allocatable: {cpu: 4, memory: 8Gi, pods: " +
		"10}}\n"
	r, warn := simulate(t, node+"---\n"+object+"metadata: {name: m}\nspec: {cpuDetail: {a: {}}}\n---\n"+object+
		"metadata: {name: gone}\n---\n"+lsr+"---\n"+other, "-")
	for _, want := range []string{
		`warning: Numatopology m: spec.cpuDetail: "a": want the number of a CPU`,
		"warning: Numatopology gone: no Node has that name",
	} {
		if !strings.Contains(warn, want) {
			t.Errorf("warnings lack %q:\n%s", want, warn)
		}
	}
	if p, q := r.Pods[0], r.Pods[1]; p.State != Unschedulable || len(p.Reasons) == 0 ||
		p.Reasons[0].Code != why.InvalidTopology || q.State != Scheduled {
		t.Errorf("the pod with a policy: %+v, the other: %+v; want InvalidTopology and Scheduled", p, q)
	}
	for name, text := range map[string]string{
		"an unknown field": object + "metadata: {name: m}\nspec: {cpuDetails: {}}\n",
		"a wrong type":     object + "metadata: {name: m}\nspec: {cpuDetail: {\"1\": {numa: one}}}\n",
		"no name":          object,
	} {
		input := Input{Paths: []string{"-"}, Stdin: strings.NewReader(text), Warn: &strings.Builder{}}
		if _, err := Run(t.Context(), input); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestOneOfEachClassAsGolden(t *testing.T) {
	r, warn := simulate(t, "", "testdata/basic")
	golden(t, "basic.json", printed(t, r, "json"))
	golden(t, "basic.yaml.golden", printed(t, r, "yaml"))
	golden(t, "basic.txt", printed(t, r, "table"))
	golden(t, "basic.warnings.txt", []byte(warn))
}

// machine is a node of two NUMA nodes with 8 cores of 2 threads each, with its topology.
// The guide shows files and what comes of them; here it is held to both.
func TestTheGuideShowsWhatHappens(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "simulate.md"))
	testkit.Check(t, err)
	node, pods := filepath.Join("testdata", "guide", "node.yaml"), filepath.Join("testdata", "guide", "pods.yaml")
	r, _ := simulate(t, "", node, pods)
	shown := []string{string(printed(t, r, "table"))}
	for _, file := range []string{node, pods} {
		text, err := os.ReadFile(file)
		testkit.Check(t, err)
		shown = append(shown, string(text))
	}
	for _, want := range shown {
		if !strings.Contains(string(guide), want) {
			t.Errorf("docs/guide/simulate.md does not show:\n%s", want)
		}
	}
}

func machine(name string) string {
	const cores, threads = 16, 2
	type cpu struct {
		ID     int `json:"id"`
		Core   int `json:"core"`
		Socket int `json:"socket"`
		Node   int `json:"node"`
	}
	var detail struct {
		Detail []cpu `json:"detail"`
	}
	for id := range cores * threads {
		detail.Detail = append(detail.Detail,
			cpu{ID: id, Core: id % cores, Socket: id % cores / 8, Node: id % cores / 8})
	}
	text, err := json.Marshal(detail)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s}}
status: {capacity: {cpu: "32", memory: 64Gi, pods: "110"}}
---
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata:
  name: %[1]s
  annotations: {node.koordinator.sh/cpu-topology: '%[2]s'}
topologyPolicies: [None]
zones: [{name: node-0, type: Node}, {name: node-1, type: Node}]
---`, name, text)
}

// exclusive is a pod with exclusive CPUs; head goes into its metadata, tail into its spec.
func exclusive(name string, cpus int, class, head, tail string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {koordinator.sh/qosClass: %s}%s}
spec:
  containers: [{name: app, image: i, resources: {limits: {cpu: "%d", memory: 64Mi}}}]%s
---`, name, class, head, cpus, tail)
}

func stateOf(r Result, name string) Pod {
	i := slices.IndexFunc(r.Pods, func(p Pod) bool { return p.Name == name })
	if i < 0 {
		return Pod{State: "absent"}
	}
	return r.Pods[i]
}

func TestPriorityThenDocumentOrderDecidesWhoGetsTheCPUs(t *testing.T) {
	in := machine("n0") +
		exclusive("first", 20, "LSR", "", "") +
		exclusive("second", 20, "LSR", "", "") +
		exclusive("important", 20, "LSR", "", "\n  priority: 9500")
	r, _ := simulate(t, in, "-")
	for name, want := range map[string]string{"first": Unschedulable, "second": Unschedulable, "important": Scheduled} {
		if got := stateOf(r, name).State; got != want {
			t.Errorf("state of %s: got %s, want %s", name, got, want)
		}
	}
	r, _ = simulate(t, machine("n0")+exclusive("z", 20, "LSR", "", "")+exclusive("a", 20, "LSR", "", ""), "-")
	if got := stateOf(r, "z").State; got != Scheduled {
		t.Errorf("the first document must win among equals: z is %s", got)
	}
}

func TestANodeWithoutTopologyTakesNoExclusivePods(t *testing.T) {
	in := `{apiVersion: v1, kind: Node, metadata: {name: bare},
  status: {capacity: {cpu: "32", memory: 64Gi, pods: "110"}}}
---` + exclusive("a", 2, "LSE", "", "")
	r, _ := simulate(t, in, "-")
	p := stateOf(r, "a")
	if p.State != Unschedulable || len(p.Reasons) != 1 || p.Reasons[0].Code.String() != "TopologyMissing" ||
		p.Reasons[0].Nodes != 1 {
		t.Errorf("got %+v, want TopologyMissing on 1 node", p)
	}
	if n := r.Nodes[0]; len(n.SharedPools) != 0 || n.SharedPools == nil {
		t.Errorf("pools of a node without topology: got %#v, want an empty list", n.SharedPools)
	}
}

func TestWebhooksLeaveTheirOwnNamespacesAlone(t *testing.T) {
	in := machine("n0") + exclusive("judged", 2, "LSX", "", "") + exclusive("exempt", 2, "LSX",
		", namespace: tenon-system", "")
	r, _ := simulate(t, in, "-")
	for name, want := range map[string]string{"judged": Refused, "exempt": Unschedulable} {
		p := stateOf(r, name)
		if p.State != want || len(p.Reasons) == 0 || p.Reasons[0].Code.String() != "InvalidField" {
			t.Errorf("%s: got %+v, want %s for InvalidField", name, p, want)
		}
	}
}

func TestEverySchedulerNameOfALocalClusterIsServed(t *testing.T) {
	in := machine("n0")
	for i, name := range schedulerNames {
		in += exclusive(fmt.Sprintf("p%d", i), 2, "LSR", "", "\n  schedulerName: "+name)
	}
	r, _ := simulate(t, in, "-")
	for _, p := range r.Pods {
		if p.State != Scheduled {
			t.Errorf("%s: got %s %v, want Scheduled", p.Name, p.State, p.Reasons)
		}
	}
}

func TestWorkloadsBecomePods(t *testing.T) {
	template := `{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]`
	nodes := `{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {capacity: {cpu: "8", memory: 8Gi, pods: "110"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {taints: [{key: own, effect: NoSchedule}]},
  status: {capacity: {cpu: "8", memory: 8Gi, pods: "110"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {unschedulable: true},
  status: {capacity: {cpu: "8", memory: 8Gi, pods: "110"}}}
---
`
	for name, c := range map[string]struct {
		manifest string
		want     []string // name and node
	}{
		"a Deployment without replicas has one": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {matchLabels: {app: a}}, ` +
				`template: ` + template + `}}}}`,
			[]string{"d-0 n0"},
		},
		"a ReplicaSet of zero has none": {
			`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r}, spec: {replicas: 0, selector: ` +
				`{matchLabels: {app: a}}, template: ` + template + `}}}}`,
			nil,
		},
		"a StatefulSet counts from its first ordinal": {
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {serviceName: s, replicas: 2, ` +
				`ordinals: {start: 3}, selector: {matchLabels: {app: a}}, template: ` + template + `}}}}`,
			[]string{"s-3 n0", "s-4 n0"},
		},
		"a DaemonSet is on every node that it tolerates, cordoned ones too": {
			`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: ds}, spec: {selector: {matchLabels: {app: a}}, ` +
				`template: ` + template + `}}}}`,
			[]string{"ds-0 n0", "ds-1 n2"},
		},
		"a Job runs no more pods at once than it needs": {
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 3, completions: 2, template: ` +
				template + `, restartPolicy: Never}}}}`,
			[]string{"j-0 n0", "j-1 n0"},
		},
		"a CronJob is one run": {
			`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {schedule: "@daily", jobTemplate: ` +
				`{spec: {template: ` + template + `, restartPolicy: Never}}}}}}`,
			[]string{"c-0 n0"},
		},
		"a suspended CronJob has none": {
			`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {suspend: true, schedule: "@daily", ` +
				`jobTemplate: {spec: {template: ` + template + `, restartPolicy: Never}}}}}}`,
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, nodes+c.manifest, "-")
			var got []string
			for _, p := range r.Pods {
				got = append(got, strings.TrimSpace(p.Name+" "+p.Node))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadInputNamesFileDocumentAndField(t *testing.T) {
	const okNode = "{apiVersion: v1, kind: Node, metadata: {name: n0}}\n---\n"
	pod := func(spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]" + spec + "}}"
	}
	for name, c := range map[string]struct{ in, want string }{
		"unknown field": {
			okNode + "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containerz: []}}",
			`standard input: document 2 (Pod a): unknown field "spec.containerz"`,
		},
		"duplicate key": {
			"a: 1\na: 2",
			`standard input: document 1: yaml: unmarshal errors: line 2: key "a" already set in map`,
		},
		"broken YAML": {"a: [", "standard input: document 1: yaml: line 1:"},
		"no kind":     {"{apiVersion: v1}", "standard input: document 1: kind: Required value"},
		"no version": {
			"{kind: Pod}",
			"standard input: document 1: apiVersion: Required value for kind Pod",
		},
		"not an object": {"[1, 2]", "standard input: document 1: this is not a Kubernetes object"},
		"unknown kind": {
			"{apiVersion: apps/v1, kind: Deploymnet, metadata: {name: a}}",
			"document 1 (Deploymnet a): kind: Deploymnet (apps/v1) is not known",
		},
		"a kind of a later time": {
			"{apiVersion: scheduling.k8s.io/v1beta1, kind: Workload, metadata: {name: r}}",
			"(Workload r): kind: Workload (scheduling.k8s.io/v1beta1) is not supported yet",
		},
		"a reservation without owners": {
			"{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, metadata: {name: r}}",
			"(Reservation r): spec.owners: must have at least one entry",
		},
		"a device that cannot be read": {
			okNode + deviceOf("n0", "{type: gpu, id: GPU-0, resources: {koordinator.sh/gpu-core: 101}}"),
			"standard input: document 2 (Device n0): spec.devices[0].resources: koordinator.sh/gpu-core: must be a " +
				"whole percentage from 0 to 100, is 101",
		},
		"a device with an unknown field": {
			okNode + deviceOf("n0", "{type: gpu, id: GPU-0, healthy: true}"),
			`standard input: document 2 (Device n0): spec.devices[0].healthy: unknown field`,
		},
		"a device of an amount that takes seconds to read": {
			okNode + deviceOf("n0", "{type: gpu, id: GPU-0, resources: {koordinator.sh/gpu-memory: '1e-2147483647'}}"),
			"(Device n0): spec.devices[0].resources: quantity \"1e-2147483647\" is out of range",
		},
		"devices that are not a list": {
			okNode + strings.ReplaceAll(deviceOf("n0", ""), "[]", "{}"),
			"(Device n0): spec.devices: want a list, got object",
		},
		"a device of another version": {
			"{apiVersion: scheduling.koordinator.sh/v9, kind: Device, metadata: {name: n0}}",
			"kind: Device (scheduling.koordinator.sh/v9) is not known",
		},
		"devices without a name":     {deviceOf("''", ""), "metadata.name: Required value"},
		"devices of one node in two": {deviceOf("n0", "") + "\n---\n" + deviceOf("n0", ""), `Duplicate value "n0"`},
		"a PodGroup of Kubernetes without a policy": {
			nativeGroup("v1alpha2", "a", "{}"),
			"(PodGroup a): spec.schedulingPolicy: must have either gang or basic, is {}",
		},
		"a PodGroup of Kubernetes with a misspelt field": {
			nativeGroup("v1beta1", "a", "{gang: {mincount: 2}}"),
			`unknown field "spec.schedulingPolicy.gang.mincount"`,
		},
		"a PodGroup of Kubernetes 1.36 with a misspelt field": {
			nativeGroup("v1alpha2", "a", "{gang: {mincount: 2}}"),
			"spec.schedulingPolicy.gang.minCount: must be a whole number from 1 to 2147483647, is absent",
		},
		"a PodGroup of Kubernetes 1.37 without a minimum": {
			nativeGroup("v1beta1", "a", "{gang: {minCount: 0}}"),
			"spec.schedulingPolicy.gang.minCount: must be a whole number from 1 to 2147483647, is 0",
		},
		"a PodGroup of a later version": {
			nativeGroup("v9", "a", "{gang: {minCount: 2}}"),
			"kind: PodGroup (scheduling.k8s.io/v9) is not supported yet",
		},
		"old version of a kind": {
			"{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: a}}",
			"document 1 (Deployment a): kind: Deployment (apps/v1beta1) is not supported: the input may hold Node",
		},
		"a version that no API server serves": {
			"{apiVersion: batch/v1beta1, kind: CronJob, metadata: {name: a}}",
			"kind: CronJob (batch/v1beta1) is not supported",
		},
		"wrong type": {pod(", priority: high"), "spec.priority"},
		"no name": {
			"{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, image: i}]}}",
			"metadata.name: Required value",
		},
		"no containers": {
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}",
			"spec.containers: Required value",
		},
		"negative amount": {
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: " +
				"{requests: {cpu: -1}}}]}}",
			"spec.containers[0].resources.requests[cpu]: Invalid value",
		},
		"request above limit": {
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: " +
				"{requests: {cpu: 2}, limits: {cpu: 1}}}]}}",
			"must be less than or equal to cpu limit",
		},
		"the same pod twice": {
			pod("") + "\n---\n" + pod(""),
			`document 2 (Pod a): metadata.name: Duplicate value "a": it is also standard input: document 1`,
		},
		"the same node twice": {okNode + okNode, "document 2 (Node n0): metadata.name: Duplicate value"},
		"a workload and a pod of its name": {
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {serviceName: s, " +
				"selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: " +
				"{containers: [{name: c, image: i}]}}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: s-0}, " +
				"spec: {containers: [{name: c, image: i}]}}",
			"Duplicate value \"s-0\"",
		},
		"template that selects nothing": {
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: " +
				"{selector: {matchLabels: {app: a}}, template: {spec: {containers: [{name: c, image: i}]}}}}",
			"spec.template.metadata.labels: Invalid value",
		},
		"more pods than a cluster has": {
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2000000000, selector: " +
				"{matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, " +
				"image: i}]}}}}",
			"2000000000 replicas are too many",
		},
		"list inside of a list": {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, " +
			"items: []}]}", "document 1, item 1: kind: a List inside of a list is not allowed"},
		"bad item of a list names the item": {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, " +
			"metadata: {name: a}, spec: {x: 1}}]}", `document 1, item 1 (Pod a): unknown field "spec.x"`},
		"a quantity that is none": {
			okNode +
				"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}, {name: d, " +
				"image: i, resources: {limits: {cpu: 1x}}}]}}",
			`standard input: document 2 (Pod a): spec.containers[1].resources.limits[cpu]: Invalid value: "1x": ` +
				`quantities must match`,
		},
		"a quantity that takes seconds to read": {
			okNode +
				"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, " +
				"resources: {limits: {cpu: '1e-2147483647'}}}]}}",
			`document 2 (Pod a): spec.containers[0].resources.limits[cpu]: Invalid value: "1e-2147483647": quantity`,
		},
		"a quantity of a node": {
			"{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {memory: 1 Gi}}}",
			`document 1 (Node n0): status.allocatable[memory]: Invalid value: "1 Gi"`,
		},
		"a quantity of a topology": {
			"{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: n0}, zones: " +
				"[{name: node-0, type: Node, resources: [{name: cpu, capacity: x, allocatable: 1, available: 1}]}]}",
			`document 1 (NodeResourceTopology n0): zones[0].resources[0].capacity: Invalid value: "x"`,
		},
		"no node": {
			pod(""),
			"no Node in the input: give nodes with -f, machines with --machine, or --cluster",
		},
		"nothing at all": {"# nothing\n---\n", "-: no Kubernetes object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(
				t.Context(),
				Input{Paths: []string{"-"}, Stdin: strings.NewReader(c.in), Warn: &strings.Builder{}},
			)
			var bad *InputError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want an InputError for\n%s", err, c.in)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %s\nwant %s\nfor  %s", err, c.want, c.in)
			}
		})
	}
}

func TestFilesAndFolders(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Check(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("b.yaml", "{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {capacity: {cpu: 8, pods: 110}}}")
	write("sub/a.json",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}},`+
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c",`+
			`"image":"i"}]}}]}`)
	write("notes.md", "not a manifest")
	r, warn := simulate(t, "", dir)
	if got := stateOf(r, "a"); got.State != Scheduled || got.Node != "n0" {
		t.Errorf("got %+v, want a on n0", got)
	}
	want := "ignored: " + filepath.Join(dir, "notes.md") +
		": not a .yaml, .yml or .json file\nignored: ConfigMap (1): they do not change where pods go\n"
	if warn != want {
		t.Errorf("warnings: got\n%swant\n%s", warn, want)
	}
	for name, path := range map[string]string{
		"no such file": filepath.Join(dir, "x.yaml"),
		"empty folder": t.TempDir(),
	} {
		if _, err := Run(t.Context(), Input{Paths: []string{path}, Stdin: nil, Warn: &strings.Builder{}}); err == nil ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, path)
		}
	}
}

func TestACurrentClusterIsInput(t *testing.T) {
	answers := map[string]string{
		"/api/v1/nodes": `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n0"},` +
			`"status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"10"}}}]}`,
		"/api/v1/pods": `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"namespace":"a",` +
			`"name":"there"},"spec":{"nodeName":"n0","containers":[{"name":"c","image":"i",` +
			`"resources":{"requests":{"cpu":"3"}}}]}}]}`,
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"NamespaceList","items":[{"metadata":{"name":"a"}}]}`,
		"/apis/scheduling.x-k8s.io/v1alpha1/podgroups": `{"apiVersion":"scheduling.x-k8s.io/v1alpha1",` +
			`"kind":"PodGroupList","items":[{"metadata":{"namespace":"default","name":"g"},"spec":{"minMember":2}}]}`,
		"/apis/scheduling.k8s.io/v1beta1/podgroups": `{"apiVersion":"scheduling.k8s.io/v1beta1","kind":` +
			`"PodGroupList","items":[{"metadata":{"namespace":"default","name":"h"},"spec":{"schedulingPolicy":` +
			`{"gang":{"minCount":3}},"disruptionMode":{"single":{}}}}]}`,
		"/apis/scheduling.k8s.io/v1alpha2/podgroups": "is served, and not read",
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, known := answers[r.URL.Path]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			text = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], " +
		"clusters: [{name: c, cluster: {server: '" + api.URL + "'}}]}"
	testkit.Check(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	var out bytes.Buffer
	in := "{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {containers: [{name: c, image: i, resources: " +
		"{requests: {cpu: 2}}}]}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: of-g, labels: " +
		"{scheduling.x-k8s.io/pod-group: g}}, spec: {containers: [{name: c, image: i}]}}\n---" +
		cpuPod("of-h", 1, "", own("h"))
	c := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: io.Discard}, Machines{})
	c.SetArgs([]string{"--cluster", "--kubeconfig", kubeconfig, "-f", "-"})
	testkit.Check(t, c.ExecuteContext(t.Context()))
	for _, want := range []string{
		"a          there  Existing       n0", "default    new    Unschedulable  -",
		"InsufficientCPU: 1 Insufficient cpu", "gang default/g has 1 of the 2 members",
		"gang default/h has 1 of the 3 members",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

// fleet is a cluster of n machines with pods of all classes.
func fleet(nodes, pods int) string {
	var b strings.Builder
	for i := range nodes {
		b.WriteString(machine(fmt.Sprintf("n%03d", i)))
	}
	for i := range pods {
		name := fmt.Sprintf("p%04d", i)
		switch i % 4 {
		case 0:
			b.WriteString(exclusive(name, 4, "LSR", "", ""))
		case 1:
			b.WriteString(exclusive(name, 2, "LSE", "", "\n  priority: 9100"))
		default:
			fmt.Fprintf(&b,
				"\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: i, "+
					"resources: {requests: {cpu: 500m, memory: 1Gi}}}]}}\n---", name)
		}
	}
	return b.String()
}

func TestEqualInputGivesEqualBytes(t *testing.T) {
	in := fleet(20, 200)
	first, _ := simulate(t, in, "-")
	second, _ := simulate(t, in, "-")
	if diff := cmp.Diff(string(printed(t, first, "json")), string(printed(t, second, "json"))); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	holders := map[string]string{}
	for _, p := range first.Pods {
		if p.State != Scheduled {
			t.Errorf("%s is %s: %v", p.Name, p.State, p.Reasons)
		}
		if p.CPUSet != "" {
			key := p.Node + " " + p.CPUSet
			if other := holders[key]; other != "" {
				t.Errorf("%s and %s both hold CPUs %s", p.Name, other, key)
			}
			holders[key] = p.Name
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{100, 1000}, {1000, 5000}} {
		in := fleet(size.nodes, size.pods)
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.pods), func(b *testing.B) {
			b.ReportAllocs()
			start := cpuTime(b)
			for b.Loop() {
				if _, err := Run(context.Background(), Input{
					Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: io.Discard,
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime(b)-start).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Reserved amounts leave a node's allocatable for all pods, not for those alone that bind CPUs.
func TestPodsDoNotGetWhatIsReservedOnANode(t *testing.T) {
	const manifests = `
apiVersion: v1
kind: Node
metadata:
  name: n0
  annotations: {node.koordinator.sh/reservation: '{"resources":{"cpu":"32","memory":"500Gi"}}'}
status: {allocatable: {cpu: "128", memory: 512Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: cpus}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "120"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: memory}
spec: {containers: [{name: c, image: i, resources: {requests: {memory: 100Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: small}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "96", memory: 12Gi}}}]}
`
	r, _ := simulate(t, manifests, "-")
	got := map[string]string{}
	for _, p := range r.Pods {
		got[p.Name] = p.State
	}
	want := map[string]string{"cpus": "Unschedulable", "memory": "Unschedulable", "small": "Scheduled"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
