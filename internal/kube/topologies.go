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
	return cache.NewSharedIndexInformer(&source[json.RawMessage]{
		client: client, versions: []schema.GroupVersionResource{v1alpha2.Resource(), old},
		begin: m.forget,
		keep:  func(text *json.RawMessage, _ schema.GroupVersion) runtime.Object { return m.read(*text) },
	}, &v1alpha2.NodeResourceTopology{}, 0, cache.Indexers{})
}

// read reads an object of any version. Each part is read by itself, so that one odd object of another writer cannot
// stop the list or the watch.
func (m *models) read(text []byte) *v1alpha2.NodeResourceTopology {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &v1alpha2.NodeResourceTopology{}
	var zones []byte
	_ = readFields(text, func(name, value []byte) {
		switch string(name) {
		case `"metadata"`:
			m.metadata(&t.ObjectMeta, value)
		case `"topologyPolicies"`:
			//nolint:staticcheck // deprecated, and still what exporters of v1alpha1 write
			readPart(value, &t.TopologyPolicies)
		case `"attributes"`:
			readPart(value, &t.Attributes)
		case `"zones"`:
			zones = value
		}
	})
	keepKubeletPins(t.Annotations)
	t.Zones = m.share(t.Annotations[annotation.CPUTopology], zones)
	return t
}

// metadata reads what is read of the metadata of an object.
func (m *models) metadata(o *metav1.ObjectMeta, text []byte) {
	_ = readFields(text, func(name, value []byte) {
		switch string(name) {
		case `"name"`:
			o.Name = readString(value)
		case `"uid"`:
			o.UID = types.UID(readString(value))
		case `"resourceVersion"`:
			o.ResourceVersion = readString(value)
		case `"generation"`:
			readPart(value, &o.Generation)
		case `"creationTimestamp"`:
			readPart(value, &o.CreationTimestamp)
		case `"annotations"`:
			o.Annotations = m.strings(value)
			delete(o.Annotations, annotation.CPUSharedPoolsKey)
			delete(o.Annotations, annotation.BECPUSharedPoolsKey)
		}
	})
}

// readPart reads a field; what does not fit its type is left out.
func readPart(text []byte, into any) {
	if len(text) > 0 {
		_ = json.Unmarshal(text, into)
	}
}

// readString reads a string; "" for what is not one.
func readString(text []byte) (s string) {
	n := len(text)
	escaped := func(c byte) bool { return c < ' ' || c > '~' || c == '\\' || c == '"' }
	if n > 1 && text[0] == '"' && text[n-1] == '"' && !slices.ContainsFunc(text[1:n-1], escaped) {
		return string(text[1 : n-1])
	}
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

// models keeps one copy of what equal machines have in common. Texts are compared as they come, and read once.
type models struct {
	mu    sync.Mutex
	texts map[string]string            // strings by their JSON
	zones map[string]v1alpha2.ZoneList // by their JSON
	// machines has the last zones that differ in more than what is not kept, by the text of the machine.
	machines map[string][]v1alpha2.ZoneList
}

// modelsKept bounds each map of models.
const modelsKept = 1024

// forget lets copies go that nothing uses any more; those in use are kept by their users.
func (m *models) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts, m.zones, m.machines = nil, nil, nil
}

// text returns the string that JSON has, "" for what is not a string.
func (m *models) text(text []byte) string {
	s, known := m.texts[string(text)]
	if !known {
		s = readString(text)
		remember(&m.texts, string(text), s)
	}
	return s
}

// strings returns the fields of an object as strings.
func (m *models) strings(object []byte) map[string]string {
	all := make(map[string]string, 8)
	_ = readFields(object, func(name, value []byte) { all[m.text(name)] = m.text(value) })
	return all
}

// share returns what is kept of the zones of a machine.
func (m *models) share(machine string, text []byte) v1alpha2.ZoneList {
	if zones, known := m.zones[string(text)]; known {
		return zones
	}
	zones := readZones(text)
	alike := m.machines[machine]
	i := slices.IndexFunc(alike, func(z v1alpha2.ZoneList) bool { return equality.Semantic.DeepEqual(z, zones) })
	if i >= 0 {
		zones = alike[i]
	} else {
		remember(&m.machines, machine, append(alike[max(0, len(alike)-machinesKept+1):], zones))
	}
	remember(&m.zones, string(text), zones)
	return zones
}

// remember adds to a map, which begins anew where it would become too large.
func remember[V any](values *map[string]V, key string, value V) {
	if *values == nil || len(*values) >= modelsKept {
		*values = map[string]V{}
	}
	(*values)[key] = value
}

// readZones reads zones with the memory and devices that each has in all.
func readZones(text []byte) (zones v1alpha2.ZoneList) {
	if annotation.HasSlowQuantity(string(text)) {
		return nil
	}
	readPart(text, &zones)
	for i := range zones {
		z := &zones[i]
		z.Resources = slices.DeleteFunc(z.Resources, func(r v1alpha2.ResourceInfo) bool {
			return !convert.IsMemory(corev1.ResourceName(r.Name)) && !convert.IsDevice(r.Name)
		})
		for j := range z.Resources {
			z.Resources[j].Available = resource.Quantity{} // moves with every pod; the account knows better
		}
	}
	return zones
}
