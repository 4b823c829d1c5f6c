package convert_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestTheTopologyPolicyComesFromTheFirstThatSaysOne draws every choice of who speaks and what they say, and holds the
// facts against the order: label, the agent's annotation, the attribute, topologyPolicies, Numatopology, the plugin.
func TestTheTopologyPolicyComesFromTheFirstThatSaysOne(t *testing.T) {
	t.Parallel()
	const silent = -1
	says := []int{silent, int(hint.None), int(hint.Restricted), int(hint.SingleNUMANode)}
	labels := []string{"None", "BestEffort", "Restricted", "SingleNUMANode"}
	kubelets := []string{"none", "best-effort", "restricted", "single-numa-node"}
	machine := convert.Topology(pairOf(t, 1)).String()
	var choice [6]int
	var try func(at int)
	try = func(at int) {
		if at < len(choice) {
			for _, choice[at] = range says {
				try(at + 1)
			}
			return
		}
		label, agent, attribute, words, exporter, plugin := choice[0], choice[1], choice[2], choice[3], choice[4],
			choice[5]
		sources := convert.Sources{Node: nodeOf(versioned)}
		if exporter != silent {
			sources.Numatopology = &nodeinfo.Numatopology{}
			sources.Numatopology.Name = "n"
			sources.Numatopology.Spec.Policies = map[string]string{nodeinfo.TopologyManagerPolicy: kubelets[exporter]}
		}
		nrt := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{
			Name:        "n",
			Annotations: map[string]string{},
		}}
		if sources.Numatopology == nil {
			nrt.Annotations[annotation.CPUTopology] = machine // else the exporter would not be read
		}
		if label != silent {
			sources.Node.Labels = map[string]string{annotation.NodeNUMATopologyPolicy: labels[label]}
		}
		if agent != silent {
			nrt.Annotations[annotation.KubeletKey] = `{"topology":{"policy":"` + kubelets[agent] + `"}}`
		}
		if attribute != silent {
			nrt.Attributes = v1alpha2.AttributeList{{
				Name:  annotation.AttributeTopologyPolicy,
				Value: kubelets[attribute],
			}}
		}
		if words != silent {
			nrt.TopologyPolicies = []string{labels[words]} //nolint:staticcheck // what exporters of v1alpha1 write
		}
		sources.Topology = nrt
		args := v1alpha1.Default()
		if plugin != silent {
			args.DefaultNUMATopologyPolicy = labels[plugin]
		}
		want, kubelet := silent, silent
		for i, said := range choice {
			if said == silent {
				continue
			}
			if want == silent {
				want = said
			}
			if i > 0 && i < 5 && kubelet == silent {
				kubelet = said
			}
		}
		f, problems := new(convert.Known).Read(sources, convert.NewArgs(args))
		if f.Topology != hint.Policy(max(want, 0)) {
			t.Errorf("label, agent, attribute, topologyPolicies, Numatopology, plugin say %v: the policy is %s", choice,
				f.Topology)
		}
		if f.Machine != nil && f.Model.Config.Topology.Policy != hint.Policy(max(kubelet, 0)) {
			t.Errorf("%v: the model's policy is %s, want %d", choice, f.Model.Config.Topology.Policy, kubelet)
		}
		contradicts := func(a, b int) bool { return a != silent && b != silent && a != b }
		exported := attribute
		if exported == silent {
			exported = words
		}
		wantProblems := 0
		for _, contradicting := range []bool{contradicts(attribute, words), contradicts(agent, exported)} {
			if contradicting {
				wantProblems++
			}
		}
		if got := len(slices.DeleteFunc(problems,
			func(p convert.Problem) bool { return p.Object != "NodeResourceTopology/n" })); got != wantProblems {
			t.Errorf("%v: %d contradictions are reported, want %d: %v", choice, got, wantProblems, problems)
		}
	}
	try(0)
}

func TestContradictionsNameBothSides(t *testing.T) {
	t.Parallel()
	nrt := nrtOf(pairOf(t, 1), map[string]string{annotation.KubeletKey: `{"topology":{"policy":"restricted"}}`})
	nrt.Attributes = v1alpha2.AttributeList{{Name: annotation.AttributeTopologyPolicy, Value: "none"}}
	_, problems := convert.Facts(nodeOf(versioned), nrt, convert.DefaultArgs())
	want := []convert.Problem{{
		Object: "NodeResourceTopology/n", Key: "attributes[topologyManagerPolicy]", Value: "none",
		Text: "says none and the annotation node.tenon.sh/kubelet says restricted: the annotation counts",
	}}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestLabelNotEnforcedForSharedPodsIsReported: it is in force for the pods that get exclusive CPUs.
func TestLabelNotEnforcedForSharedPodsIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, label string
		want        bool
	}{
		"Own":                 {"Own", "Restricted", false},
		"Follow, Restricted":  {"Follow", "Restricted", true},
		"Follow, one node":    {"Follow", "SingleNUMANode", true},
		"Blind":               {"Blind", "Restricted", true},
		"Follow, BestEffort":  {"Follow", "BestEffort", false},
		"Follow, no label":    {"Follow", "", false},
		"Follow, label None":  {"Follow", "None", false},
		"Blind, nothing said": {"Blind", "", false},
	} {
		nrt := nrtOf(pairOf(t, 1), map[string]string{
			annotation.TopologyMode: c.mode,
			annotation.KubeletKey:   `{"topology":{"policy":"restricted"}}`,
		})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
		if c.label != "" {
			node.Labels[annotation.NodeNUMATopologyPolicy] = c.label
		}
		_, problems := convert.Facts(node, nrt, convert.DefaultArgs())
		var want []convert.Problem
		if c.want {
			want = []convert.Problem{{
				Object: "Node/n", Key: annotation.NodeNUMATopologyPolicy, Value: c.label, Kind: convert.PartlyInForce,
				Text: "in mode " + c.mode +
					" pods of the CPU shared pool are not confined to NUMA nodes: the policy applies to pods with " +
					"exclusive CPUs",
			}}
		}
		if diff := cmp.Diff(want, problems); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", name, diff)
		}
	}
}
