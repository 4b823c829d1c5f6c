package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	configMap = "\n{apiVersion: v1, kind: ConfigMap, metadata: {namespace: tenon-system, name: " +
		"slo-controller-config}, data: {colocation-config: " +
		`'{"enable": true, "cpuReclaimThresholdPercent": 60}'}}` + "\n---"
	batchProfile = "\n{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, metadata: {name: " +
		"nightly}, spec: {selector: {matchLabels: {app: nightly}}, qosClass: BE, priorityClassName: koord-batch}}\n---"
	nightly = ", labels: {app: nightly}"
)

// halfUsed is a Node of 10 CPUs, all requested by a service, of which 3 are used: batch pods may have 3 of the 6
// that all pods may use.
const halfUsed = `
{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {cpu: 10, memory: 100Gi, pods: 110}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: service}, spec: {nodeName: n0, priority: 9500, containers: [{name: c,
  image: i, resources: {requests: {cpu: 10, memory: 10Gi}}}]}, status: {phase: Running,
  startTime: "2026-01-01T00:00:00Z"}}
---
{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeMetric, metadata: {name: n0}, status: {updateTime:
  "2026-01-01T00:10:00Z", nodeMetric: {nodeUsage: {resources: {cpu: 3, memory: 10Gi}}},
  podsMetric: [{namespace: default, name: service, priority: koord-prod, qos: LS, podUsage: {resources: {
  cpu: 3, memory: 10Gi}}}]}}
---`

// batchZones is what the agent writes of two NUMA nodes that share 3 CPUs for batch pods.
const batchZones = `
{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: n0}, zones: [
  {name: node-0, type: Node, resources: [{name: cpu, capacity: 5, allocatable: 5, available: 5},
    {name: kubernetes.io/batch-cpu, capacity: 1500, allocatable: 1500, available: 1500}]},
  {name: node-1, type: Node, resources: [{name: cpu, capacity: 5, allocatable: 5, available: 5},
    {name: kubernetes.io/batch-cpu, capacity: 1500, allocatable: 1500, available: 1500}]}]}
---`

// TestBatchPodsUseWhatServicesLeave: by the manager's own profiles and amounts.
func TestBatchPodsUseWhatServicesLeave(t *testing.T) {
	t.Parallel()
	batch := func(name string, cpus int, spec string) string { return cpuPod(name, cpus, nightly, spec) }
	inQuota := func(name string) string {
		return cpuPod(name, 2, ", labels: {app: nightly, quota.scheduling.koordinator.sh/name: q}", "")
	}
	// injected is a batch pod as the profile has made it, to which a LimitRange has added CPU after that.
	injected := func(name string) string {
		metadata := `, labels: {app: nightly, koordinator.sh/qosClass: BE, quota.scheduling.koordinator.sh/name: q}, ` +
			`annotations: {` + annotation.ExtendedResourceSpecKey +
			`: '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"2k"}}}}'}`
		return strings.Replace(cpuPod(name, 1, metadata, ", priorityClassName: koord-batch"), "{cpu: 1}}",
			"{cpu: 1, kubernetes.io/batch-cpu: 2000}, limits: {cpu: 1}}", 1)
	}
	const (
		noCPU     = "InsufficientCPU Insufficient cpu"
		noBatch   = "InsufficientExtended Insufficient kubernetes.io/batch-cpu"
		noVictims = "NoVictims No preemption victims found for incoming pod"
		busy      = "UsageThreshold node(s) cpu usage exceed threshold"
	)
	const class = "\n{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, " +
		"value: 5900}\n---"
	for name, c := range map[string]struct {
		input string
		want  map[string]string // state of each pod, with its reasons
	}{
		"a batch pod fits where all CPUs are requested": {
			halfUsed + configMap + batchProfile + batch("a", 3, ""), map[string]string{"a": Scheduled},
		},
		"a pod without a profile is what it was": {
			halfUsed + configMap + batchProfile + cpuPod("a", 3, ", labels: {app: other}", ""),
			map[string]string{"a": "Unschedulable, " + noCPU + ", " + noVictims},
		},
		"a pod of a namespace whose webhooks are not asked": {
			halfUsed + configMap + batchProfile + batch("a", 3, "") +
				cpuPod("b", 3, nightly+", namespace: kube-system", ""),
			map[string]string{"a": Scheduled, "b": "Unschedulable, " + noCPU + ", " + noVictims + ", " + busy},
		},
		"a batch pod above what is left": {
			halfUsed + configMap + batchProfile + batch("a", 4, ""),
			map[string]string{"a": "Unschedulable, " + noBatch},
		},
		"a node whose strategy is off": {
			halfUsed + batchProfile + batch("a", 3, ""), map[string]string{"a": "Unschedulable, " + noBatch},
		},
		"an old report": {
			halfUsed + configMap + batchProfile + batch("a", 3, "") + usedNode("n1", "9", `"2026-01-01T01:00:00Z"`),
			map[string]string{"a": "Unschedulable, " + noBatch + ", MetricExpired node(s) nodeMetric expired, " + busy},
		},
		"a class by whose value alone a pod is a batch pod": {
			halfUsed + configMap + class + strings.Replace(batchProfile, "qosClass: BE, priorityClassName: koord-batch",
				"priorityClassName: urgent", 1) + batch("a", 3, ""),
			map[string]string{"a": "Refused, InvalidField spec.containers[0].resources[kubernetes.io/batch-cpu]: " +
				"must specify koordinator QoS BE with koordinator colocation resources"},
		},
		"a pod whose resources as a whole cannot be those of a batch pod": {
			halfUsed + configMap + batchProfile + cpuPod("a", 1, nightly, ", resources: {requests: {cpu: 1}}"),
			map[string]string{"a": "Refused, InvalidField spec.resources: resources of the whole pod cannot be those " +
				"of a koord-batch pod: write them at its containers"},
		},
		"a quota counts batch amounts": {
			halfUsed + configMap + batchProfile + elastic(koordinator, "q", "", "{kubernetes.io/batch-cpu: 2000}",
				"{kubernetes.io/batch-cpu: 2500}") + inQuota("a") + inQuota("b"),
			map[string]string{
				"a": Scheduled,
				"b": "Unschedulable, QuotaExceeded Insufficient quotas, quotaName: q, runtime: " +
					"kubernetes.io/batch-cpu:2500, used: kubernetes.io/batch-cpu:2k, pod's request: " +
					"kubernetes.io/batch-cpu:2k, exceedDimensions: [kubernetes.io/batch-cpu]",
			},
		},
		"a quota counts no CPU that a LimitRange has injected into a batch pod": {
			halfUsed + configMap + batchProfile + elastic(koordinator, "q", "",
				"{cpu: 0, kubernetes.io/batch-cpu: 2000}", "{cpu: 0, kubernetes.io/batch-cpu: 2500}") +
				strings.Replace(inQuota("a"), "requests: {cpu: 2}",
					"requests: {cpu: 2}, limits: {cpu: 4}", 1) + injected("b"),
			map[string]string{
				"a": Scheduled,
				"b": "Unschedulable, QuotaExceeded Insufficient quotas, quotaName: q, runtime: " +
					"kubernetes.io/batch-cpu:2500, used: kubernetes.io/batch-cpu:2k, pod's request: " +
					"kubernetes.io/batch-cpu:2k, exceedDimensions: [kubernetes.io/batch-cpu]",
			},
		},
		"what the Node keeps for other programs is not lent": {
			strings.Replace(halfUsed, "name: n0}", "name: n0, annotations: {"+annotation.NodeReservation+
				`: '{"resources":{"cpu":"2"}}'}}`, 1) + configMap + batchProfile + batch("a", 1, "") +
				batch("b", 1, ""),
			map[string]string{"a": Scheduled, "b": "Unschedulable, " + noBatch + ", " + noVictims},
		},
		"a Node that aligns pods places batch pods by its own amounts, not by those of its NUMA nodes": {
			strings.Replace(halfUsed, "name: n0}", "name: n0, labels: {"+annotation.NodeNUMATopologyPolicy+
				": SingleNUMANode}}", 1) + batchZones + configMap + batchProfile + batch("a", 2, "") +
				batch("b", 1, "") + batch("c", 1, ""),
			map[string]string{
				"a": Scheduled, "b": Scheduled, "c": "Unschedulable, " + noBatch + ", " + noVictims,
			},
		},
		"of two profiles the later one by name says what a pod is": {
			halfUsed + configMap + batchProfile + strings.Replace(strings.Replace(batchProfile, "nightly}, spec",
				"other}, spec", 1), "qosClass: BE, priorityClassName: koord-batch",
				"qosClass: LS, priorityClassName: koord-prod", 1) + batch("a", 3, ""),
			map[string]string{"a": "Unschedulable, " + noCPU + ", " + noVictims},
		},
		"a batch pod of higher priority preempts one": {
			halfUsed + configMap + batchProfile + class + `
{apiVersion: v1, kind: Pod, metadata: {name: old, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: n0,
  priority: 5500, containers: [{name: c, image: i, resources: {requests: {kubernetes.io/batch-cpu: 2000},
  limits: {kubernetes.io/batch-cpu: 2000}}}]}, status: {phase: Running, startTime: "2026-01-01T00:00:00Z"}}
---` + strings.NewReplacer("koord-batch", "urgent", "nightly", "urgent").Replace(batchProfile) +
				cpuPod("a", 2, ", labels: {app: urgent}", ""),
			map[string]string{
				"old": "Preempted, Preempted preempted by pod default/a of priority 5900", "a": Scheduled,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := simulate(t, c.input, "-")
			got := map[string]string{}
			for _, p := range r.Pods {
				text := p.State
				for _, reason := range p.Reasons {
					text += fmt.Sprintf(", %s %s", reason.Code, reason.Message)
				}
				got[p.Name] = text
			}
			delete(got, "service")
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodesShowTheAmountsOfTheManager: batch and mid CPU in milli.
func TestNodesShowTheAmountsOfTheManager(t *testing.T) {
	t.Parallel()
	written := strings.Replace(halfUsed, "pods: 110", "pods: 110, kubernetes.io/batch-cpu: 7000", 1)
	starting := strings.Replace(halfUsed, "2026-01-01T00:00:00Z", "2026-01-01T00:20:00Z", 1)
	const now = `"2026-01-01T00:26:00Z"`
	for name, c := range map[string]struct {
		input   string
		amount  int64
		warning string
	}{
		"what the report leaves":                           {halfUsed + configMap, 3000, ""},
		"what the status says, without a strategy":         {written, 7000, ""},
		"what the report leaves, whatever the status says": {written + configMap, 3000, ""},
		"nothing of an old report, whatever the status says": {
			written + configMap + usedNode("n1", "1", now), 0,
			"Node n0: no batch or mid amounts: no NodeMetric of it in the input has its use of CPU and memory and is " +
				"at most 15 minutes older than the latest time",
		},
		"a pod that started after the report counts with its request": {starting + configMap, 0, ""},
		"the strategy of the node": {
			strings.Replace(halfUsed, "name: n0}",
				`name: n0, labels: {node.koordinator.sh/cpu-reclaim-ratio: "0.8"}}`, 1) + configMap, 5000, "",
		},
		"a NodeSLO beside it": {
			halfUsed + configMap + "\n{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeSLO, metadata: {name: n0}}",
			3000, "ignored: NodeSLO (1): they do not change where pods go",
		},
	} {
		docs, err := readDocuments([]string{stdin}, strings.NewReader(c.input), io.Discard)
		testkit.Check(t, err)
		var warn strings.Builder
		w, err := Input{Warn: &warn}.readWorld(docs)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		amount := w.nodes[0].Status.Allocatable["kubernetes.io/batch-cpu"]
		if amount.Value() != c.amount {
			t.Errorf("%s: %s, want %d", name, amount.String(), c.amount)
		}
		if got := warn.String(); c.warning != "" != strings.Contains(got, cmp.Or(c.warning, "amounts")) {
			t.Errorf("%s: warnings %q, want %q", name, got, c.warning)
		}
	}
}

// TestBadColocationInputIsRefused: with file, document and field.
func TestBadColocationInputIsRefused(t *testing.T) {
	t.Parallel()
	profile := func(spec string) string {
		return strings.Replace(batchProfile, "qosClass: BE", spec, 1) + cpuPod("a", 1, nightly, "")
	}
	for name, c := range map[string]struct{ input, want string }{
		"a percentage above 200": {
			strings.Replace(configMap, "60", "201", 1),
			"document 4 (ConfigMap tenon-system/slo-controller-config): data.colocation-config:1:18: " +
				"cpuReclaimThresholdPercent: Invalid value: 201",
		},
		"a misspelled field of the ConfigMap": {strings.Replace(configMap, "enable", "enabel", 1), "enabel"},
		"two ConfigMaps": {
			configMap + strings.Replace(configMap, "tenon-system", "koordinator-system", 1),
			`document 5 (ConfigMap koordinator-system/slo-controller-config): metadata.name: Duplicate value`,
		},
		"a bad annotation of a node": {
			cpuNode("n1", 1) + strings.Replace(strings.Replace(cpuNode("n2", 1), "labels: {", "annotations: {"+
				"node.koordinator.sh/colocation-strategy: '{\"enable\": 1}'}, labels: {", 1), "---", "", 1),
			"document 5 (Node n2): metadata.annotations[node.koordinator.sh/colocation-strategy]:",
		},
		"a probability above 100 %": {
			profile(`probability: "101%"`),
			"document 4 (ClusterColocationProfile nightly): spec.probability: Invalid value \"101%\": must be 0 to 100",
		},
		"an unknown QoS class": {profile("qosClass: gold"), "spec.qosClass: "},
		"a patch that renames the pod": {
			profile("patch: {metadata: {name: b}}"), "document 5 (Pod a): a ClusterColocationProfile whose spec.patch",
		},
	} {
		_, err := Run(t.Context(), Input{
			Paths: []string{stdin}, Stdin: strings.NewReader(halfUsed + c.input), Warn: io.Discard,
		})
		var bad *InputError
		if !errors.As(err, &bad) || bad.ExitCode() != 2 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestAProfileThatMakesAPodInvalid: the API server refuses the pod.
func TestAProfileThatMakesAPodInvalid(t *testing.T) {
	t.Parallel()
	r, _ := simulate(t, halfUsed+strings.Replace(batchProfile, "qosClass: BE", "labels: {x: not a label}", 1)+
		cpuPod("a", 1, nightly, ""), "-")
	got := stateOf(r, "a")
	if got.State != Refused || len(got.Reasons) != 1 || got.Reasons[0].Code != why.InvalidField ||
		!strings.Contains(got.Reasons[0].Message, "metadata.labels") {
		t.Errorf("%s: %+v, want a refusal that names metadata.labels", got.State, got.Reasons)
	}
}

// TestTheResultHasWhatAProfileWrites: the annotation for the agent, and not those of the manifest.
func TestTheResultHasWhatAProfileWrites(t *testing.T) {
	t.Parallel()
	r, warn := simulate(t, halfUsed+configMap+batchProfile+cpuPod("a", 1, nightly+", annotations: {own: x}", ""), "-")
	want := map[string]string{annotation.ExtendedResourceSpecKey: `{"containers":{"c":{"requests":` +
		`{"kubernetes.io/batch-cpu":"1k"}}}}`}
	if diff := gocmp.Diff(want, stateOf(r, "a").Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	const said = "warning: Pod default/a: spec.containers[0].resources: cpu and memory are those of a koord-batch pod"
	if strings.TrimSpace(warn) != said {
		t.Errorf("warnings %q, want %q", warn, said)
	}
}

// TestAPartOfThePodsIsTheSamePart: a profile of 30 % changes 30 of about 100 pods, the same ones each time.
func TestAPartOfThePodsIsTheSamePart(t *testing.T) {
	t.Parallel()
	in := halfUsed + configMap + strings.Replace(batchProfile, "qosClass: BE", "qosClass: BE, probability: 30%", 1)
	for i := range 100 {
		in += cpuPod(fmt.Sprintf("p%d", i), 1, nightly, "")
	}
	changed := func() (names []string) {
		r, _ := simulate(t, in, "-")
		for _, p := range r.Pods {
			if p.State == Scheduled || p.Reasons != nil && strings.Contains(fmt.Sprint(p.Reasons), "batch-cpu") {
				names = append(names, p.Name)
			}
		}
		return names
	}
	first := changed()
	if n := len(first); n < 20 || n > 40 {
		t.Errorf("%d of 100 pods are changed, want about 30", n)
	}
	if diff := gocmp.Diff(first, changed()); diff != "" {
		t.Errorf("the same input changes other pods:\n%s", diff)
	}
}
