package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// kubelets is a cluster of three nodes: the agent of the first reports all settings of the kubelet that it follows,
// only a foreign exporter describes the second, and the label of the third requests a mode that its agent does not
// report.
func kubelets(t *testing.T) *account {
	t.Helper()
	followed := node("followed", "62", map[string]string{
		annotation.TopologyMode:             "Follow",
		annotation.NodeNUMAAllocateStrategy: "MostAllocated",
	})
	followed.Status.NodeInfo.KubeletVersion = "v1.36.3"
	foreign := node("foreign", "16", nil)
	foreign.Status.NodeInfo.KubeletVersion = "v1.34.1"
	wished := node("wished", "16", map[string]string{
		annotation.TopologyMode:           "Follow",
		annotation.NodeNUMATopologyPolicy: "SingleNUMANode",
	})

	reported := topology(t, "followed", shape{2, 1, 16, 2}, map[string]string{
		annotation.TopologyMode: "Follow",
		annotation.KubeletCPUManagerPolicy: `{"policy":"static","options":{"full-pcpus-only":"true"},` +
			`"reservedCPUs":"0,32"}`,
		annotation.KubeletKey: `{"version":"v1.36.3","cpu":{"policy":"static","options":{"full-pcpus-only":"true"},` +
			`"reserved":"0,32"},` +
			`"memory":{"policy":"Static","reserved":{"0":{"memory":"1Gi","hugepages-2Mi":"64Mi"}}},` +
			`"topology":{"policy":"restricted","scope":"pod","options":{"max-allowable-numa-nodes":"12",` +
			`"prefer-closest-numa-nodes":"true"}}}`,
		annotation.NUMAStateKey: `{"memory":{"0":{"allocatable":{"memory":"61Gi","hugepages-2Mi":"2Gi"},` +
			`"free":{"memory":"41Gi","hugepages-2Mi":"1Gi"},"group":[0,1],"assignments":2},` +
			`"1":{"allocatable":{"memory":"64Gi"},"free":{"memory":"44Gi"},"group":[0,1],"assignments":1}}}`,
	})
	pages := resource.MustParse("2112Mi")
	reported.Zones[0].Resources = append(reported.Zones[0].Resources,
		v1alpha2.ResourceInfo{Name: "hugepages-2Mi", Capacity: pages, Allocatable: pages, Available: pages})

	other := topology(t, "foreign", shape{1, 2, 4, 2}, nil)
	other.TopologyPolicies = []string{"RestrictedPodLevel"} //nolint:staticcheck // what exporters of v1alpha1 write
	other.Attributes = v1alpha2.AttributeList{
		{Name: annotation.AttributeTopologyPolicy, Value: "best-effort"},
		{Name: annotation.AttributeTopologyScope, Value: "container"},
	}
	free := resource.MustParse("40Gi")
	other.Zones[1].Resources[0].Available = free

	return newAccount([]corev1.Node{followed, foreign, wished}, nil, []v1alpha2.NodeResourceTopology{
		reported, other, topology(t, "wished", shape{1, 1, 8, 2}, map[string]string{annotation.TopologyMode: "Own"}),
	})
}

func TestKubeletsAsGolden(t *testing.T) {
	a := kubelets(t)
	golden(t, "kubelets.txt", pictures(a, paint{}))
	var out strings.Builder
	testkit.Check(t, printTopology(&out, a, "", "yaml", paint{}, 0))
	golden(t, "kubelets.yaml", out.String())
}

func TestEverySettingSaysWhereItComesFrom(t *testing.T) {
	a := kubelets(t)
	for name, test := range map[string]struct {
		node   string
		origin func(view.Node) view.Origin
		want   view.Origin
	}{
		"a mode that the agent reports": {
			"followed", func(v view.Node) view.Origin { return v.Mode.From },
			view.Origin{Source: "annotation", Key: "node.tenon.sh/topology-mode"},
		},
		"a mode that is not reported": {
			"foreign", func(v view.Node) view.Origin { return v.Mode.From },
			view.Origin{Source: "assumed"},
		},
		"the CPU manager, by the agent": {
			"followed", func(v view.Node) view.Origin { return v.Kubelet.CPU.From },
			view.Origin{Source: "annotation", Key: "node.tenon.sh/kubelet"},
		},
		"the memory manager of a foreign exporter's node": {
			"foreign", func(v view.Node) view.Origin { return v.Kubelet.Memory.From }, view.Origin{Source: "assumed"},
		},
		"an attribute, which is newer than topologyPolicies": {
			"foreign", func(v view.Node) view.Origin { return v.Kubelet.Topology.From },
			view.Origin{Source: "attribute", Key: "topologyManagerPolicy"},
		},
		"a policy of which two lists speak": {
			"foreign",
			func(v view.Node) view.Origin { return v.Policies.From["numaTopology"] },
			view.Origin{Source: "attribute", Key: "topologyManagerPolicy"},
		},
		"a policy by label": {
			"wished",
			func(v view.Node) view.Origin { return v.Policies.From["numaTopology"] },
			view.Origin{Source: "nodeLabel", Key: annotation.NodeNUMATopologyPolicy},
		},
		"a strategy by label": {
			"followed",
			func(v view.Node) view.Origin { return v.Policies.From["numaAllocate"] },
			view.Origin{Source: "nodeLabel", Key: annotation.NodeNUMAAllocateStrategy},
		},
		"a strategy by no one": {
			"wished",
			func(v view.Node) view.Origin { return v.Policies.From["numaAllocate"] },
			view.Origin{Source: "pluginArgument"},
		},
	} {
		if got := test.origin(a.node(test.node)); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	if v := a.node("wished"); v.Mode.Mode != "Own" || v.Mode.Wish != "Follow" {
		t.Errorf("the mode is %+v, want Own while the label asks for Follow", v.Mode)
	}
}

func TestUnreadableAnnotationsCountAsAbsent(t *testing.T) {
	nrt := topology(t, "n", shape{1, 1, 2, 2}, map[string]string{
		annotation.KubeletKey: "{", annotation.TopologyMode: "Both", annotation.NUMAStateKey: `{"memory":[]}`,
	})
	v := newAccount([]corev1.Node{node("n", "4", nil)}, nil, []v1alpha2.NodeResourceTopology{nrt}).node("n")
	if v.Mode.From.Source != view.FromAssumption || v.Kubelet.CPU.From.Source != view.FromAssumption ||
		v.Sockets[0].NUMA[0].MemoryFree == "" {
		t.Errorf("mode %+v, kubelet %+v, memory %q: want assumptions where nothing is reported", v.Mode, v.Kubelet,
			v.Sockets[0].NUMA[0].MemoryFree)
	}
	if len(v.Problems) < 2 {
		t.Errorf("problems are %v, want the unreadable annotations", v.Problems)
	}
}

func TestWhatOtherExportersTellOfTheTopologyManager(t *testing.T) {
	for name, test := range map[string]struct {
		words      []string
		attributes v1alpha2.AttributeList
		want       string
	}{
		"a word": {
			words: []string{"RestrictedContainerLevel"},
			want:  "restricted container topologyPolicies",
		},
		"a word for pods": {
			words: []string{"SingleNUMANodePodLevel"},
			want:  "single-numa-node pod topologyPolicies",
		},
		"an unknown word": {words: []string{"Strict"}, want: "none container assumed"},
		"an unknown word, too": {
			words: []string{"PodLevel", "BestEffort"},
			want:  "best-effort container topologyPolicies",
		},
		"an attribute beats a word": {
			words: []string{"None"}, attributes: v1alpha2.AttributeList{{
				Name:  "topologyManagerPolicy",
				Value: "restricted",
			}, {Name: "topologyManagerScope", Value: "pod"}},
			want: "restricted pod attribute",
		},
		"an attribute that means nothing": {
			words: []string{"BestEffort"}, attributes: v1alpha2.AttributeList{{
				Name:  "topologyManagerPolicy",
				Value: "SingleNUMANode",
			}, {Name: "topologyManagerScope", Value: "node"}},
			want: "best-effort container topologyPolicies",
		},
	} {
		nrt := topology(t, "n", shape{1, 1, 2, 2}, nil)
		//nolint:staticcheck // deprecated, and still what exporters of v1alpha1 write
		nrt.TopologyPolicies, nrt.Attributes = test.words, test.attributes
		a := newAccount([]corev1.Node{node("n", "4", nil)}, nil, []v1alpha2.NodeResourceTopology{nrt})
		m := a.node("n").Kubelet.Topology
		if got := m.Policy + " " + m.Scope + " " + m.From.Source; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
