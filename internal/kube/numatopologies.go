package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
)

// NewNumatopologyInformer returns an informer of Volcano's Numatopologies, with name and spec. A cluster without the
// resource looks like one without objects until it is installed.
func NewNumatopologyInformer(client rest.Interface) cache.SharedIndexInformer {
	var m sharedCPUs
	return cache.NewSharedIndexInformer(&source[map[string]any]{
		client: client, versions: []schema.GroupVersionResource{nodeinfo.Resource()},
		begin: m.forget,
		keep: func(one *map[string]any, _ schema.GroupVersion) runtime.Object {
			return m.read(&unstructured.Unstructured{Object: *one})
		},
	}, &nodeinfo.Numatopology{}, 0, cache.Indexers{})
}

// sharedCPUs keeps one map of CPUs for equal machines: the map of 256 CPUs is larger than everything else together.
type sharedCPUs struct {
	mu       sync.Mutex // guards machines
	machines []map[string]nodeinfo.CPUInfo
}

// machinesKept bounds the maps that are looked through for an equal one.
const machinesKept = 32

func (s *sharedCPUs) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = nil
}

func (s *sharedCPUs) read(u *unstructured.Unstructured) *nodeinfo.Numatopology {
	n := ReadNumatopology(u)
	cpus := n.Spec.CPUDetail
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.machines, func(known map[string]nodeinfo.CPUInfo) bool { return maps.Equal(known, cpus) })
	switch {
	case i >= 0:
		n.Spec.CPUDetail = s.machines[i]
	case len(s.machines) < machinesKept:
		s.machines = append(s.machines, cpus)
	}
	return n
}

// ReadNumatopology takes what is read of u field by field, so that one odd object cannot hide the others. If a part of
// the machine or of its free CPUs does not fit its type, it has no CPUs, which is reported later.
func ReadNumatopology(u *unstructured.Unstructured) *nodeinfo.Numatopology {
	n := &nodeinfo.Numatopology{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration(),
		CreationTimestamp: u.GetCreationTimestamp(),
	}}
	whole := true
	for _, f := range []struct {
		name  string
		into  any
		vital bool
	}{
		{"policies", &n.Spec.Policies, false},
		{"resReserved", &n.Spec.ResReserved, false},
		{"podAllocations", &n.Spec.PodAllocations, false},
		{"numares", &n.Spec.NumaResMap, true},
		{"cpuDetail", &n.Spec.CPUDetail, true},
	} {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, "spec", f.name)
		if err == nil && found {
			var text []byte
			if text, err = json.Marshal(value); err == nil {
				err = json.Unmarshal(text, f.into)
			}
		}
		whole = whole && (err == nil || !f.vital)
	}
	if !whole {
		n.Spec.CPUDetail = nil
	}
	return n
}
