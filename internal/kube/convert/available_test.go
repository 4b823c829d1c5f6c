package convert_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// zonesWith is an object of another exporter with resources of NUMA node 0, and two devices that are free on node 1.
func zonesWith(resources string) string {
	return `
attributes: [{name: topologyManagerPolicy, value: restricted}]
zones:
- {name: node-0, type: Node, resources: [` + resources + `]}
- {name: node-1, type: Node, resources: [{name: vendor/nic1, capacity: 2, allocatable: 2, available: 2}]}
`
}

func TestWhatAnotherExporterReportsAsTaken(t *testing.T) {
	t.Parallel()
	taken := func(n int) []kubelet.Devices { return []kubelet.Devices{{Resource: "vendor/nic1", Nodes: 1, Count: n}} }
	const three = "{name: vendor/nic1, capacity: 4, allocatable: 4, available: 1}"
	for name, c := range map[string]struct {
		resources   string
		annotations map[string]string
		want        []kubelet.Devices
		used        []align.Amount
		problem     string
	}{
		"some":                  {resources: three, want: taken(3)},
		"all":                   {resources: strings.ReplaceAll(three, "available: 1", "available: 0"), want: taken(4)},
		"none":                  {resources: strings.ReplaceAll(three, "available: 1", "available: 4")},
		"more than allocatable": {resources: strings.ReplaceAll(three, "available: 1", "available: 5")},
		"nothing is said":       {resources: strings.ReplaceAll(three, ", available: 1", "")},
		"twice: the first counts": {
			resources: three + ", " + strings.ReplaceAll(three, "available: 1", "available: 0"), want: taken(3),
		},
		"less than none": {
			resources: strings.ReplaceAll(three, "available: 1", "available: -1"),
			problem:   "zones[node-0].resources[vendor/nic1].available: want 0 or more",
		},
		"memory and CPUs are not devices": {
			resources: "{name: cpu, capacity: 2, allocatable: 2, available: 500m}, " +
				"{name: memory, capacity: 8Gi, allocatable: 8Gi, available: 1Gi}",
			used: []align.Amount{{Resource: why.CPU, N: 1500}, {Resource: why.Memory, N: 7 << 30}},
		},
		"CPUs that are all available":   {resources: "{name: cpu, capacity: 2, allocatable: 2, available: 3}"},
		"CPUs of which nothing is said": {resources: "{name: cpu, capacity: 2, allocatable: 2}"},
		"CPUs twice: the first counts": {
			resources: "{name: cpu, capacity: 2, allocatable: 2, available: 0}, " +
				"{name: cpu, capacity: 2, allocatable: 2, available: 1}",
			used: []align.Amount{{Resource: why.CPU, N: 2000}},
		},
		"fewer CPUs than none": {
			resources: "{name: cpu, capacity: 2, allocatable: 2, available: -1}",
			problem:   "zones[node-0].resources[cpu].available: want 0 or more",
		},
		"an agent reports what pods have of CPUs": {
			resources:   "{name: cpu, capacity: 2, allocatable: 2, available: 0}",
			annotations: map[string]string{annotation.KubeletKey: `{"topology":{"policy":"restricted"}}`},
		},
		"an agent reports what pods have": {
			resources:   three,
			annotations: map[string]string{annotation.KubeletKey: `{"topology":{"policy":"restricted"}}`},
		},
		"it reports devices alone": {
			resources: three, annotations: map[string]string{annotation.NUMAStateKey: `{"devices":{"vendor/nic1":[]}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{}
			node.Name, node.Status.NodeInfo.KubeletVersion = "n", "v1.36.3"
			nrt := exporterObject(t, zonesWith(c.resources))
			nrt.Name, nrt.Annotations = "n", map[string]string{annotation.CPUTopology: cpusOfTwoNodes}
			for key, value := range c.annotations {
				nrt.Annotations[key] = value
			}
			facts, problems := convert.Facts(node, nrt, convert.DefaultArgs())
			if facts.Model.Node == nil {
				t.Fatalf("no kubelet is predicted: %+v, %v", facts.Model, problems)
			}
			var got []kubelet.Devices
			for _, g := range facts.Given {
				for _, placed := range g.Placement {
					got = append(got, placed.Devices...)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.used, facts.Used); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
			text := ""
			for _, p := range problems {
				text += p.Field() + ": " + p.Text
			}
			if text != c.problem {
				t.Errorf("problems %q, want %q", text, c.problem)
			}
		})
	}
}
