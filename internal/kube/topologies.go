package kube

import (
	"encoding/json"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// NewTopologyInformer returns an informer of what the scheduler reads of NodeResourceTopologies of any version. A
// cluster without the resource looks like one without objects until it is installed.
func NewTopologyInformer(client rest.Interface) cache.SharedIndexInformer {
	var m models
	old := v1alpha2.Resource() // its fields are a subset
	old.Version = "v1alpha1"
	return cache.NewSharedIndexInformer(&source[publishedTopology]{
		client: client, versions: []schema.GroupVersionResource{v1alpha2.Resource(), old},
		begin: m.forget, keep: func(p *publishedTopology, _ schema.GroupVersion) runtime.Object { return m.trim(p) },
	}, &v1alpha2.NodeResourceTopology{}, 0, cache.Indexers{})
}

// publishedTopology is what is read of an object in any version. Each part is read by itself, so that one odd object of
// another writer cannot stop the list or the watch.
type publishedTopology struct {
	Metadata struct {
		Name              string                     `json:"name"`
		UID               types.UID                  `json:"uid"`
		ResourceVersion   string                     `json:"resourceVersion"`
		Generation        int64                      `json:"generation"`
		CreationTimestamp metav1.Time                `json:"creationTimestamp"`
		Annotations       map[string]json.RawMessage `json:"annotations"`
	} `json:"metadata"`
	TopologyPolicies json.RawMessage `json:"topologyPolicies"`
	Attributes       json.RawMessage `json:"attributes"`
	Zones            json.RawMessage `json:"zones"`
}

func (m *models) trim(p *publishedTopology) *v1alpha2.NodeResourceTopology {
	t := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{
		Name: p.Metadata.Name, UID: p.Metadata.UID, ResourceVersion: p.Metadata.ResourceVersion,
		Generation: p.Metadata.Generation, CreationTimestamp: p.Metadata.CreationTimestamp,
		Annotations: make(map[string]string, len(p.Metadata.Annotations)),
	}}
	for key, text := range p.Metadata.Annotations {
		switch key {
		case annotation.CPUTopology, annotation.CPUSharedPoolsKey, annotation.BECPUSharedPoolsKey:
		default:
			t.Annotations[key] = unquoted(text)
		}
	}
	//nolint:staticcheck // deprecated, and still what exporters of v1alpha1 write
	readPart(p.TopologyPolicies, &t.TopologyPolicies)
	readPart(p.Attributes, &t.Attributes)
	if !annotation.HasSlowQuantity(string(p.Zones)) {
		readPart(p.Zones, &t.Zones)
	}
	keepKubeletPins(t.Annotations)
	for i := range t.Zones {
		z := &t.Zones[i]
		z.Resources = slices.DeleteFunc(z.Resources, func(r v1alpha2.ResourceInfo) bool {
			return !convert.IsMemory(corev1.ResourceName(r.Name)) && !convert.IsDevice(r.Name)
		})
		for j := range z.Resources {
			z.Resources[j].Available = resource.Quantity{} // moves with every pod; the account knows better
		}
	}
	if text, ok := p.Metadata.Annotations[annotation.CPUTopology]; ok {
		t.Annotations[annotation.CPUTopology], t.Zones = m.share(text, t.Zones)
	}
	return t
}

// readPart reads a list; what does not fit its type is left out.
func readPart(text json.RawMessage, into any) {
	if len(text) > 0 {
		_ = json.Unmarshal(text, into)
	}
}

func unquoted(text json.RawMessage) (s string) {
	readPart(text, &s)
	return s
}

// keepKubeletPins drops the pods that Tenon bound itself: the account knew them before the report did, and a report
// of nothing else must not look like a change.
func keepKubeletPins(annotations map[string]string) {
	text, ok := annotations[annotation.PodCPUAllocsKey]
	if !ok {
		return
	}
	allocs, _, err := annotation.ParsePodCPUAllocs(text)
	if err != nil {
		return // reported where facts are read
	}
	allocs = slices.DeleteFunc(allocs, func(a annotation.PodCPUAlloc) bool { return !a.ManagedByKubelet })
	annotations[annotation.PodCPUAllocsKey] = allocs.String()
}

// models keeps one copy of what equal machines have in common. The text of a machine is by far the largest part of an
// object, so it is compared as it comes and unquoted once.
type models struct {
	mu     sync.Mutex
	byText map[string]*model // by the JSON of text
}

type model struct {
	text  string
	zones []v1alpha2.ZoneList
}

// forget lets copies go that nothing uses any more; those in use are kept by their users.
func (m *models) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byText = nil
}

func (m *models) share(text json.RawMessage, zones v1alpha2.ZoneList) (string, v1alpha2.ZoneList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byText[string(text)]
	if known == nil {
		if m.byText == nil {
			m.byText = map[string]*model{}
		}
		known = &model{text: unquoted(text)}
		m.byText[string(text)] = known
	}
	for _, z := range known.zones {
		if equality.Semantic.DeepEqual(z, zones) {
			return known.text, z
		}
	}
	known.zones = append(known.zones, zones)
	return known.text, zones
}
