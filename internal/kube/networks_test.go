package kube_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

func TestNetworksAreReadOneByOne(t *testing.T) {
	t.Parallel()
	object := func(name string, layers any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "ClusterNetworkTopology",
			"metadata": map[string]any{"name": name, "managedFields": []any{map[string]any{"manager": "m"}}},
			"spec":     map[string]any{"networkTopologySpec": layers},
		}}
	}
	c, _ := client(t,
		object("default", []any{map[string]any{"topologyLayer": "Block", "labelKey": []any{"net/block"}}}),
		object("odd", "Block"))
	i := kube.NewNetworkInformer(c)
	start(t, i)
	get := func(name string) *devicev1alpha1.ClusterNetworkTopology {
		o, found, _ := i.GetStore().GetByKey(name)
		if !found {
			t.Fatalf("%s is not there", name)
		}
		return o.(*devicev1alpha1.ClusterNetworkTopology)
	}
	if got := get("default"); got.Spec.NetworkTopologySpec[0].LabelKey[0] != "net/block" || got.ManagedFields != nil {
		t.Errorf("got %+v", got)
	}
	if got := get("odd"); got.Name != "odd" || got.Spec.NetworkTopologySpec != nil {
		t.Errorf("one odd object: %+v", got)
	}
	if kube.SameNetwork(get("default"), get("odd")) || !kube.SameNetwork(get("odd"), get("odd").DeepCopy()) {
		t.Error("what is the same is not")
	}
}

// TestAGangIsTriedWhenItsLayerComes: of the object named default, and of no other.
func TestAGangIsTriedWhenItsLayerComes(t *testing.T) {
	t.Parallel()
	s, activated := gangs(t)
	p := memberOf("a", "1")
	p.Annotations[annotation.GangNetworkTopology] = `{"gatherStrategy":[{"layer":"Block","strategy":"MustGather"}]}`
	s.PutPod(p)
	activated()
	network := &devicev1alpha1.ClusterNetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	network.Spec.NetworkTopologySpec = []devicev1alpha1.NetworkLayer{{TopologyLayer: "Block", LabelKey: []string{"l"}}}
	s.PutNetwork(network)
	gathers := kube.Ask(s, func(s *gang.State) bool { return s.HasDomainRules(string(p.UID)) })
	if got := gate(s, p).Code; got != why.GangLayerNotFound || len(activated()) > 0 || !gathers {
		t.Fatalf("another object counts: %v", got)
	}
	network = network.DeepCopy()
	network.Name = "default"
	s.PutNetwork(network)
	if got := activated(); len(got) != 1 || gate(s, p).Code != why.None {
		t.Errorf("activated %v, the gate says %v", got, gate(s, p))
	}
	layers := kube.Ask(s, (*gang.State).Layers)
	if got := layers.DomainOf(domain.Rule{Layer: "Block"}, "n", map[string]string{"l": "b1"}); got != "b1" {
		t.Errorf("the domain is %q", got)
	}
	got := kube.Ask(s, func(s *gang.State) *domain.Request { return s.DomainRequest(string(p.UID)) })
	if got == nil || len(got.Rules) != 1 {
		t.Errorf("got %+v", got)
	}
	s.RemoveNetwork(network)
	if got := gate(s, p).Code; got != why.GangLayerNotFound {
		t.Errorf("the gate says %v without the object", got)
	}
}

// TestTheCliqueOfANodeIsItsLabel, as long as the node has the label.
func TestTheCliqueOfANodeIsItsLabel(t *testing.T) {
	t.Parallel()
	s, _ := gangs(t)
	for _, name := range []string{"a", "b"} {
		p := memberOf(name, "2")
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		r := &p.Spec.Containers[0].Resources
		r.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
		r.Limits = r.Requests
		s.PutPod(p)
	}
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	}
	labeled := node(map[string]string{"nvidia.com/gpu.clique": "f.1"})
	for _, c := range []struct {
		event string
		apply func()
		want  bool
	}{
		{"before the node", func() {}, false},
		{"the node comes", func() { s.PutNode(labeled) }, true},
		{"it loses the label", func() { s.PutNode(node(nil)) }, false},
		{"it has it again", func() { s.PutNode(labeled) }, true},
		{"the label is empty", func() { s.PutNode(node(map[string]string{"nvidia.com/gpu.clique": ""})) }, false},
		{"it comes back", func() { s.PutNode(labeled) }, true},
		{"the node goes", func() { s.RemoveNode(labeled) }, false},
	} {
		c.apply()
		report := kube.Ask(s, func(s *gang.State) gang.Report { r, _ := s.Find(s.Gangs()[0]); return r })
		if got := slices.Contains(report.Rules, domain.Rule{Layer: domain.GPUCliqueLayer}); got != c.want {
			t.Errorf("%s: prefers a clique: %t", c.event, got)
		}
	}
}
