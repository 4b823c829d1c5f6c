package kube

import (
	"context"
	"encoding/json"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
)

// NewNumatopologyInformer returns an informer of Volcano's Numatopologies. Its cache holds *nodeinfo.Numatopology with
// name and spec. As with topologies, a cluster without the resource looks like one without objects until it is
// installed.
func NewNumatopologyInformer(client rest.Interface) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&numatopologySource{client: client}, &nodeinfo.Numatopology{}, 0,
		cache.Indexers{})
}

// numatopologySource lists and watches Numatopologies. Equal machines share one map of CPUs: the map of 256 CPUs is
// larger than everything else together.
type numatopologySource struct {
	client rest.Interface
	absence

	mu       sync.Mutex // guards machines
	machines []map[string]nodeinfo.CPUInfo
}

// machinesKept bounds the maps that are looked through for an equal one.
const machinesKept = 32

// IsWatchListSemanticsUnSupported makes the reflector list in pages, and lets a missing resource be an empty list.
func (*numatopologySource) IsWatchListSemanticsUnSupported() bool { return true }

func (s *numatopologySource) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

func (s *numatopologySource) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext returns all Numatopologies.
func (s *numatopologySource) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	all := &nodeinfo.NumatopologyList{}
	s.forget()
	var err error
	all.ResourceVersion, err = pages(ctx, s.client, nodeinfo.Resource(), options, func(object *map[string]any) {
		all.Items = append(all.Items, *s.read(&unstructured.Unstructured{Object: *object}))
	})
	if apierrors.IsNotFound(err) {
		s.begin()
		return &nodeinfo.NumatopologyList{}, nil
	}
	s.end()
	return all, err
}

// WatchWithContext watches from where a list ended.
func (s *numatopologySource) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface,
	error,
) {
	if s.holds() {
		return s.rest()
	}
	w, err := dynamic.New(s.client).Resource(nodeinfo.Resource()).Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return trim(w, func(u *unstructured.Unstructured) runtime.Object { return s.read(u) }), nil
}

func (s *numatopologySource) read(u *unstructured.Unstructured) *nodeinfo.Numatopology {
	n := ReadNumatopology(u)
	n.Spec.CPUDetail = s.share(n.Spec.CPUDetail)
	return n
}

func (s *numatopologySource) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = nil
}

func (s *numatopologySource) share(cpus map[string]nodeinfo.CPUInfo) map[string]nodeinfo.CPUInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.machines {
		if maps.Equal(known, cpus) {
			return known
		}
	}
	if len(s.machines) < machinesKept {
		s.machines = append(s.machines, cpus)
	}
	return cpus
}

// ReadNumatopology takes from u what is read of a Numatopology, field by field, so that one odd object cannot hide the
// others. What does not fit its type is left out; of a machine, or of its free CPUs, nothing may be left out, so that
// then the object has no CPUs, which is reported when facts are read.
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
