package sim

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/core/why"
)

// pageRow returns what the page of reasons says of a code: its condition, whether a new node helps, and what the
// cluster autoscaler does.
func pageRow(t *testing.T, code string) (condition string, helps bool, acts string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.HasPrefix(line, "| [`"+code+"`]") {
			return strings.Trim(cells[1], "`"), cells[2] != "no", strings.TrimSuffix(cells[3], " |\n")
		}
	}
	t.Fatalf("the page has no row for %s", code)
	return "", false, ""
}

// byAmounts returns what the plugins of Kubernetes see of an input once its pods were tried: Nodes, and Pods without
// keys of Tenon, those with a node on it. Of the others it has those that wait.
func byAmounts(t *testing.T, in string, r Result, waits func(name string) bool) (out string) {
	t.Helper()
	for _, doc := range strings.Split(in, "\n---") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		meta, _ := object["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		spec, _ := object["spec"].(map[string]any)
		switch object["kind"] {
		case "Node":
		case "Pod":
			delete(meta, "annotations")
			labels, _ := meta["labels"].(map[string]any)
			maps.DeleteFunc(labels, func(key string, _ any) bool { return strings.Contains(key, ".sh/") })
			if p := stateOf(r, name); p.Node != "" {
				spec["nodeName"] = p.Node
			} else if !waits(name) {
				continue
			}
		default:
			continue
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out += string(text) + "\n---\n"
	}
	return out
}

// scalesUp is the cluster autoscaler: of the pods with the reason Unschedulable and without a nominated node it leaves
// out those that fit a node by the plugins of Kubernetes, and adds a node of the template if one of the others fits it.
func scalesUp(t *testing.T, in, template string, r Result) bool {
	t.Helper()
	waits := func(name string) bool {
		p := stateOf(r, name)
		return p.Node == "" && len(p.Reasons) > 0 && !slices.ContainsFunc(p.Reasons, func(reason Reason) bool {
			return reason.Code.Condition() != why.Unschedulable
		})
	}
	seen := byAmounts(t, in, r, waits)
	now, _ := simulate(t, seen, "-")
	left := byAmounts(t, seen, now, func(name string) bool { return stateOf(now, name).Node == "" })
	then, _ := simulate(t, left+template, "-")
	return slices.ContainsFunc(then.Pods, func(p Pod) bool { return p.Node == "new" })
}

// TestTheAutoscalersView: what the cluster autoscaler does for a pod, and whether the pod starts on the node that it
// would add, is what the page says of the code.
func TestTheAutoscalersView(t *testing.T) {
	t.Parallel()
	single := func(name string) string {
		return strings.Replace(machine(name), "labels: {",
			"labels: {node.koordinator.sh/numa-topology-policy: SingleNUMANode, ", 1)
	}
	const apart = ", affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: " +
		"kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}}]}}"
	with := func(spec string) string {
		return strings.Replace(cpuNode("n0", 4), "status:", "spec: {"+spec+"}, status:", 1)
	}
	inGang := ", annotations: {gang.scheduling.koordinator.sh/name: g, " +
		"gang.scheduling.koordinator.sh/min-available: '2'}"
	inQuota := ", labels: {quota.scheduling.koordinator.sh/name: q}"
	zone := strings.Replace(cpuNode("new", 8), "labels: {", "labels: {zone: b, ", 1)
	affinity := `, annotations: {scheduling.koordinator.sh/reservation-affinity: '{"reservationSelector":{"a":"b"}}'}`
	ports := func(name string) string {
		return strings.Replace(cpuPod(name, 1, "", ""), "image: i,",
			"image: i, ports: [{containerPort: 1, hostPort: 80}],", 1)
	}
	for code, c := range map[why.Code]struct {
		in, template string
		adds         bool
	}{
		why.InsufficientCPU: {cpuNode("n0", 4) + cpuPod("p", 6, "", ""), cpuNode("new", 8), true},
		why.NodeAffinity:    {cpuNode("n0", 4) + cpuPod("p", 1, "", ", nodeSelector: {zone: b}"), zone, true},
		why.NodePorts:       {cpuNode("n0", 4) + ports("first") + ports("p"), cpuNode("new", 4), true},
		why.NodeUnschedulable: {
			with("unschedulable: true") + cpuPod("p", 1, "", ""), cpuNode("new", 4), true,
		},
		why.TaintToleration: {
			with("taints: [{key: a, effect: NoSchedule}]") + cpuPod("p", 1, "", ""), cpuNode("new", 4), true,
		},
		why.InsufficientMemory: {
			cpuNode("n0", 4) + strings.Replace(cpuPod("p", 1, "", ""), "cpu: 1", "cpu: 1, memory: 96Gi", 1),
			strings.ReplaceAll(cpuNode("new", 4), "64Gi", "128Gi"), true,
		},
		why.InsufficientPods: {
			strings.ReplaceAll(cpuNode("n0", 4), "pods: 200", "pods: 1") + cpuPod("first", 1, "", "") +
				cpuPod("p", 1, "", ""), cpuNode("new", 4), true,
		},
		why.PodAffinity: {
			cpuNode("n0", 4) + cpuPod("first", 1, ", labels: {app: a}", "") + cpuPod("p", 1, "", apart),
			cpuNode("new", 4), true,
		},
		why.GangGated: {
			cpuNode("n0", 4) + cpuPod("p", 6, inGang, "") +
				cpuPod("q", 1, inGang, ", schedulingGates: [{name: example.com/g}]"), cpuNode("new", 8), false,
		},
		why.GangGroupNotMutual: {
			cpuNode("n0", 4) + cpuPod("p", 6, strings.Replace(inGang, "'2'",
				`'1', gang.scheduling.koordinator.sh/groups: '["default/g","default/h"]'`, 1), ""),
			cpuNode("new", 8), false,
		},
		why.GangSiblingFailed: {
			cpuNode("n0", 4) + cpuPod("p", 3, inGang, "") + cpuPod("q", 3, inGang, ""),
			cpuNode("new", 4), true,
		},
		why.GangNotReady: {cpuNode("n0", 4) + cpuPod("p", 6, inGang, ""), cpuNode("new", 8), false},
		why.GangNotFound: {
			cpuNode("n0", 4) + cpuPod("p", 6, ", labels: {pod-group.scheduling.sigs.k8s.io: x}", ""),
			cpuNode("new", 8), false,
		},
		why.QuotaExceeded: {elastic(koordinator, "q", "", "{cpu: 1}", "{cpu: 1}") + cpuNode("n0", 4) +
			cpuPod("p", 6, inQuota, ""), cpuNode("new", 8), false},
		why.SchedulingGate: {
			cpuNode("n0", 4) + cpuPod("p", 6, "", ", schedulingGates: [{name: example.com/g}]"),
			cpuNode("new", 8), false,
		},
		why.ReservationAffinity: {cpuNode("n0", 4) + cpuPod("p", 6, affinity, ""), cpuNode("new", 8), false},
		why.TopologyPolicy: {single("n0") + exclusive("a", 10, "LSR", "", "") + exclusive("b", 10, "LSR", "", "") +
			exclusive("p", 8, "LSR", "", ""), single("new"), false},
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			r, _ := simulate(t, c.in, "-")
			p := stateOf(r, "p")
			if len(p.Reasons) == 0 || p.Reasons[0].Code != code {
				t.Fatalf("the pod is %s, refused by %+v", p.State, p.Reasons)
			}
			condition, helps, acts := pageRow(t, code.String())
			if condition != code.Condition() {
				t.Errorf("the page has the condition %s, the code %s", condition, code.Condition())
			}
			if got := scalesUp(t, c.in, c.template, r); got != c.adds ||
				got && acts != "adds nodes" && acts != "as for the member that failed" || !got && acts == "adds nodes" {
				t.Errorf("the autoscaler adds a node: %t, want %t; the page: %q", got, c.adds, acts)
			}
			grown, _ := simulate(t, c.in+"\n---\n"+c.template, "-")
			if got := stateOf(grown, "p").State == "Scheduled"; got != helps {
				t.Errorf("with a new node the pod is scheduled: %t, by the page: %t", got, helps)
			}
		})
	}
}
