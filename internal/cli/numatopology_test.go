package cli

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// volcanos is a node of 8 CPUs on two NUMA nodes that Volcano's exporter alone describes.
func volcanos(cpuManager string) *account {
	o := &nodeinfo.Numatopology{Spec: nodeinfo.NumatopoSpec{
		Policies: map[string]string{
			nodeinfo.CPUManagerPolicy:      cpuManager,
			nodeinfo.TopologyManagerPolicy: "restricted",
		},
		ResReserved: map[string]string{"cpu": "1"},
		NumaResMap:  map[string]nodeinfo.ResourceInfo{"cpu": {Allocatable: "0-2,4-5,7", Capacity: 8}},
		CPUDetail:   map[string]nodeinfo.CPUInfo{},
		PodAllocations: []nodeinfo.PodAllocation{
			{UID: "u", ContainerAllocations: []nodeinfo.ContainerAllocation{{
				Name:        "c",
				Allocations: map[string]string{"cpu": "6"},
			}}},
		},
	}}
	o.Name = "n"
	for c := range 8 {
		o.Spec.CPUDetail[fmt.Sprint(c)] = nodeinfo.CPUInfo{
			NUMANodeID: int64(c / 4), SocketID: int64(c / 4),
			CoreID: int64(c % 4),
		}
	}
	n := node("n", "8", nil)
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	a := newAccount([]corev1.Node{n}, nil, nil)
	a.store.PutNumatopology(o)
	return a
}

func TestTopologyOfANodeThatVolcanoDescribes(t *testing.T) {
	var out strings.Builder
	testkit.Check(t, printTopology(&out, volcanos("static"), "n", "table", paint{}, 0))
	for _, want := range []string{
		"mode: Follow (assumed)", "CPU static, reserved 0 (Numatopology)",
		"topology restricted, scope container (Numatopology)", "may be stale",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	v := volcanos("static").node("n")
	got := v.Policies.From["numaTopology"]
	if got.Source != view.FromNumatopology || v.Policies.NUMATopology != "Restricted" {
		t.Errorf("the policy %s is from %+v, want Restricted from the Numatopology", v.Policies.NUMATopology, got)
	}
	if len(v.Pods) != 1 || v.Pods[0].Name != "u" || v.Pods[0].CPUSet != "6" {
		t.Errorf("pods %+v, want the one of which only the UID is known", v.Pods)
	}
	if got := volcanos("none").node("n"); got.Mode.Mode != "Blind" ||
		got.Kubelet.CPU.From.Source != view.FromNumatopology {
		t.Errorf("without the static policy: mode %+v, CPU manager %+v; want Blind by the Numatopology", got.Mode,
			got.Kubelet.CPU)
	}
}
