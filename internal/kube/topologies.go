package kube

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	v := values{read: text}
	_ = v.fields(func(name []byte) error {
		if string(name) == `"metadata"` {
			_, _, err := v.within(func() error {
				_, err := m.metadata(&t.ObjectMeta, &v)
				return err
			})
			return err
		}
		value, err := v.next()
		if err != nil {
			return err
		}
		switch string(name) {
		case `"topologyPolicies"`:
			//nolint:staticcheck // deprecated, and still what exporters of v1alpha1 write
			readPart(value, &t.TopologyPolicies)
		case `"attributes"`:
			t.Attributes = m.attributes.read(value, readPartAs[v1alpha2.AttributeList])
		case `"zones"`:
			zones = value
		}
		return nil
	})
	_, reported := t.Annotations[annotation.KubeletKey]
	t.Zones = m.share(t.Annotations[annotation.CPUTopology], zones, reported)
	return t
}

// metadata reads what is read of the metadata of an object, the next value, and returns the JSON of its labels.
func (m *models) metadata(o *metav1.ObjectMeta, v *values) (labels []byte, err error) {
	err = v.fields(func(name []byte) error {
		value, err := v.next()
		if err != nil {
			return err
		}
		switch string(name) {
		case `"name"`:
			o.Name = readString(value)
		case `"uid"`:
			o.UID = types.UID(readString(value))
		case `"resourceVersion"`:
			o.ResourceVersion = readString(value)
		case `"generation"`:
			o.Generation = readNumber(value)
		case `"creationTimestamp"`:
			o.CreationTimestamp = readTime(value)
		case `"annotations"`:
			o.Annotations = m.annotations.read(value, m.readAnnotations)
		case `"labels"`:
			labels = value
		}
		return nil
	})
	return labels, err
}

// readAnnotations reads the annotations that the scheduler reads, and others.
func (m *models) readAnnotations(text []byte) map[string]string {
	all := m.strings(text)
	delete(all, annotation.CPUSharedPoolsKey)
	delete(all, annotation.BECPUSharedPoolsKey)
	keepKubeletPins(all)
	return all
}

// readPart reads a field; what does not fit its type is left out.
func readPart(text []byte, into any) {
	if len(text) > 0 {
		_ = json.Unmarshal(text, into)
	}
}

// readPartAs is readPart of a value of its own.
func readPartAs[T any](text []byte) (value T) {
	readPart(text, &value)
	return value
}

// readString reads a string; "" for what is not one.
func readString(text []byte) string {
	n := len(text)
	if n < 2 || text[0] != '"' || text[n-1] != '"' {
		return readPartAs[string](text)
	}
	inside, escapes := text[1:n-1], 0
	for i := 0; i < len(inside); i++ {
		c := inside[i]
		if c == '\\' && i+1 < len(inside) && (inside[i+1] == '"' || inside[i+1] == '\\') {
			escapes++
			i++
		} else if c < ' ' || c > '~' || c == '\\' || c == '"' {
			return readPartAs[string](text)
		}
	}
	if escapes == 0 {
		return string(inside)
	}
	var s strings.Builder
	s.Grow(len(inside) - escapes)
	for {
		at := bytes.IndexByte(inside, '\\')
		if at < 0 {
			s.Write(inside)
			return s.String()
		}
		s.Write(inside[:at])
		s.WriteByte(inside[at+1])
		inside = inside[at+2:]
	}
}

// readNumber reads a whole number; 0 for what is not one.
func readNumber(text []byte) int64 {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && text[0] >= '1' && text[0] <= '9' {
		return n
	}
	return readPartAs[int64](text)
}

// readTime reads a time; the zero one for what is not one.
func readTime(text []byte) metav1.Time {
	if at, err := time.Parse(time.RFC3339, readString(text)); err == nil {
		return metav1.NewTime(at.Local())
	}
	return readPartAs[metav1.Time](text)
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

// copies keeps one copy of what several objects have in common, by its JSON, which is read once it is kept. A text is
// kept when it comes a second time: those that name pods, or devices by their ids, differ on each node. What it returns
// must not be changed.
type copies[V any] struct {
	values map[string]V
	seen   map[uint64]struct{} // hashes of texts that have come once or more
}

// hashesKept bounds the hashes of copies.
const hashesKept = 16 * modelsKept

// textSeed makes hashes of texts.
var textSeed = maphash.MakeSeed()

// read returns what parse makes of a text.
func (c *copies[V]) read(text []byte, parse func([]byte) V) V {
	value, known := c.values[string(text)]
	if known {
		return value
	}
	value = parse(text)
	hash := maphash.Bytes(textSeed, text)
	if _, again := c.seen[hash]; again {
		remember(&c.values, string(text), value)
		return value
	}
	if c.seen == nil || len(c.seen) >= hashesKept {
		c.seen = map[uint64]struct{}{}
	}
	c.seen[hash] = struct{}{}
	return value
}

// models keeps one copy of what equal machines have in common. Texts are compared as they come.
type models struct {
	mu          sync.Mutex // guards all fields
	texts       copies[string]
	annotations copies[map[string]string]
	attributes  copies[v1alpha2.AttributeList]
	// zones are those of nodes whose agent reports their kubelet, foreign the others.
	zones, foreign copies[v1alpha2.ZoneList]
	// machines has the last zones that differ in more than what is not kept, by the text of the machine.
	machines map[string][]v1alpha2.ZoneList
}

// modelsKept bounds each map of models.
const modelsKept = 1024

// forget lets copies go that nothing uses any more; those in use are kept by their users.
func (m *models) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts, m.annotations = copies[string]{}, copies[map[string]string]{}
	m.attributes, m.machines = copies[v1alpha2.AttributeList]{}, nil
	m.zones, m.foreign = copies[v1alpha2.ZoneList]{}, copies[v1alpha2.ZoneList]{}
}

// text returns the string that JSON has, "" for what is not a string.
func (m *models) text(text []byte) string { return m.texts.read(text, readString) }

// strings returns the fields of an object as strings.
func (m *models) strings(object []byte) map[string]string {
	all := make(map[string]string, 8)
	_ = readFields(object, func(name, value []byte) { all[m.text(name)] = m.text(value) })
	return all
}

// share returns what is kept of the zones of a machine. reported is whether an agent reports what its pods have.
func (m *models) share(machine string, text []byte, reported bool) v1alpha2.ZoneList {
	known := &m.foreign
	if reported {
		known = &m.zones
	}
	return known.read(text, func(text []byte) v1alpha2.ZoneList {
		zones := readZones(text, reported)
		alike := m.machines[machine]
		i := slices.IndexFunc(alike, func(z v1alpha2.ZoneList) bool { return equality.Semantic.DeepEqual(z, zones) })
		if i >= 0 {
			return alike[i]
		}
		remember(&m.machines, machine, append(alike[max(0, len(alike)-machinesKept+1):], zones))
		return zones
	})
}

// remember adds to a map, which begins anew where it would become too large.
func remember[V any](values *map[string]V, key string, value V) {
	if *values == nil || len(*values) >= modelsKept {
		*values = map[string]V{}
	}
	(*values)[key] = value
}

// readZones reads zones with the memory and devices that each has in all. Where no agent reports what pods have, the
// available devices say it.
func readZones(text []byte, reported bool) (zones v1alpha2.ZoneList) {
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
			if r := &z.Resources[j]; reported || !convert.IsDevice(r.Name) {
				r.Available = resource.Quantity{} // moves with every pod; the account knows better
			}
		}
	}
	return zones
}
