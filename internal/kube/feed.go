package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
)

// Watch feeds the store from informers, for owners that have no other consumer of the same events. topologies may be
// nil. It returns a function that reports whether every object of the informers' initial lists has been put.
func (s *Store) Watch(nodes, pods, topologies cache.SharedIndexInformer) (hasSynced func() bool, err error) {
	var fed []cache.ResourceEventHandlerRegistration
	for _, feed := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{nodes, s.nodeHandler()}, {topologies, s.TopologyHandler()}, {pods, s.podHandler()}} {
		if feed.informer == nil {
			continue
		}
		r, err := ByUID(feed.informer).AddEventHandler(feed.handler)
		if err != nil {
			return nil, fmt.Errorf("feed the store: %w", err)
		}
		fed = append(fed, r)
	}
	return func() bool {
		for _, r := range fed {
			if !r.HasSynced() {
				return false
			}
		}
		return true
	}, nil
}

// TopologyHandler puts NodeResourceTopologies.
func (s *Store) TopologyHandler() cache.ResourceEventHandler {
	return Handler(s.PutTopology, func(t *v1alpha2.NodeResourceTopology) { s.RemoveTopology(t.Name) })
}

// NumatopologyHandler puts Numatopologies.
func (s *Store) NumatopologyHandler() cache.ResourceEventHandler {
	return Handler(s.PutNumatopology, func(n *nodeinfo.Numatopology) { s.RemoveNumatopology(n.Name) })
}

func (s *Store) nodeHandler() cache.ResourceEventHandler {
	return Handler(s.PutNode, func(n *corev1.Node) { s.RemoveNode(n.Name) })
}

func (s *Store) podHandler() cache.ResourceEventHandler { return Handler(s.PutPod, s.RemovePod) }

// Handler calls put with what is and remove with what was, unwrapping the tombstones of missed deletions.
func Handler[T any](put, remove func(T)) cache.ResourceEventHandler {
	onPut := func(obj any) {
		if o, ok := obj.(T); ok {
			put(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    onPut,
		UpdateFunc: func(_, obj any) { onPut(obj) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if o, ok := obj.(T); ok {
				remove(o)
			}
		},
	}
}

// First returns the informer with a handler in front: handlers that are added to it get each event after first had it.
// A consumer that acts on an event (a scheduling queue that wakes pods) then never sees the store behind it.
func First(first cache.ResourceEventHandler, i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &through{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler { return inOrder{first, h} }}
}

// ByUID returns the informer with namesakes kept apart: when an object was deleted and recreated in a gap of the watch,
// the informer delivers one update from the old object to the new one; handlers get a deletion and an addition.
func ByUID(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &through{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler { return byUID{h} }}
}

// Mapped returns the informer with each object as f makes it. What listers return stays as it is.
func Mapped[T any](i cache.SharedIndexInformer, f func(T) T) cache.SharedIndexInformer {
	apply := func(obj any) any {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			if last, ok := gone.Obj.(T); ok {
				gone.Obj = f(last)
			}
			return gone
		}
		if o, ok := obj.(T); ok {
			return f(o)
		}
		return obj
	}
	return &through{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler { return mapped{h, apply} }}
}

type mapped struct {
	cache.ResourceEventHandler
	apply func(any) any
}

func (m mapped) OnAdd(obj any, initial bool) { m.ResourceEventHandler.OnAdd(m.apply(obj), initial) }

func (m mapped) OnUpdate(old, obj any) { m.ResourceEventHandler.OnUpdate(m.apply(old), m.apply(obj)) }

func (m mapped) OnDelete(obj any) { m.ResourceEventHandler.OnDelete(m.apply(obj)) }

// through adds handlers to an informer as wrap makes them.
type through struct {
	cache.SharedIndexInformer
	wrap func(cache.ResourceEventHandler) cache.ResourceEventHandler
}

func (t *through) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return t.SharedIndexInformer.AddEventHandler(t.wrap(h))
}

type byUID struct{ cache.ResourceEventHandler }

func (h byUID) OnUpdate(old, obj any) {
	was, errWas := meta.Accessor(old)
	is, errIs := meta.Accessor(obj)
	if errWas == nil && errIs == nil && was.GetUID() != is.GetUID() {
		h.OnDelete(old)
		h.OnAdd(obj, false)
		return
	}
	h.ResourceEventHandler.OnUpdate(old, obj)
}

type inOrder [2]cache.ResourceEventHandler

func (h inOrder) OnAdd(obj any, initial bool) {
	for _, handler := range h {
		handler.OnAdd(obj, initial)
	}
}

func (h inOrder) OnUpdate(old, obj any) {
	for _, handler := range h {
		handler.OnUpdate(old, obj)
	}
}

func (h inOrder) OnDelete(obj any) {
	for _, handler := range h {
		handler.OnDelete(obj)
	}
}
