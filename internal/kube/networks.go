package kube

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// NewNetworkInformer returns an informer of ClusterNetworkTopologies. One that cannot be read has no layers. A cluster
// without the resource looks like one without objects until it is installed.
func NewNetworkInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{devicev1alpha1.NetworkResource()}, "ClusterNetworkTopology",
		readNetwork)
}

func readNetwork(text *json.RawMessage) *devicev1alpha1.ClusterNetworkTopology {
	var n devicev1alpha1.ClusterNetworkTopology
	if err := json.Unmarshal(*text, &n); err != nil {
		n.Spec = devicev1alpha1.ClusterNetworkTopologySpec{}
		_ = json.Unmarshal(*text, &struct{ Metadata any }{&n.ObjectMeta}) // what does not fit the type is left out
	}
	n.ManagedFields = nil
	return &n
}

// SameNetwork reports whether two objects describe the same layers.
func SameNetwork(a, b *devicev1alpha1.ClusterNetworkTopology) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// PutNetwork records the layers of the cluster's network.
func (s *Gangs) PutNetwork(n *devicev1alpha1.ClusterNetworkTopology) {
	var layers []domain.Layer
	for _, l := range n.Spec.NetworkTopologySpec {
		layers = append(layers, domain.Layer{
			Name: l.TopologyLayer, Parent: l.ParentTopologyLayer, Labels: slices.Clone(l.LabelKey),
		})
	}
	s.putLayers(n.Name, layers)
}

// RemoveNetwork forgets them.
func (s *Gangs) RemoveNetwork(n *devicev1alpha1.ClusterNetworkTopology) { s.putLayers(n.Name, nil) }

// PutNode records the GPU clique that the label of a node names.
func (s *Gangs) PutNode(n *corev1.Node) { s.putClique(n.Name, n.Labels[domain.GPUCliqueLabel]) }

// RemoveNode forgets the clique of a node.
func (s *Gangs) RemoveNode(n *corev1.Node) { s.putClique(n.Name, "") }

func (s *Gangs) putClique(node, clique string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.PutNode(node, clique)
}

func (s *Gangs) putLayers(name string, layers []domain.Layer) {
	if name == devicev1alpha1.ClusterNetworkTopologyName {
		s.Update(func(state *gang.State) gang.Effects { return state.PutLayers(domain.NewLayers(layers)) })
	}
}
