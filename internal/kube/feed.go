package kube

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Handler calls put with each new state of an object, and remove with the last state of a deleted one, which it takes
// out of the tombstone of a missed deletion.
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

// ByName returns a handler that adds the name of each object that changes, with its namespace if it has one.
func ByName(add func(name string)) cache.ResourceEventHandler {
	changed := func(object any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			add(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed,
	}
}

// Work looks at each key of a queue until ctx ends, and shuts the queue down then. It looks at a key again after the
// time that look returns, 0 for at the next event, and after an error, later with each one. failure says in the log
// what has failed.
func Work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], failure string,
	look func(context.Context, K) (again time.Duration, err error),
) {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for key, ended := queue.Get(); !ended; key, ended = queue.Get() {
		again, err := look(ctx, key)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, failure, "key", key)
			queue.AddRateLimited(key)
		} else if queue.Forget(key); again > 0 {
			queue.AddAfter(key, again)
		}
		queue.Done(key)
	}
}

// First returns the informer with a handler in front: the handler that is added to it first gets each event after first
// had it. A consumer that acts on an event (a scheduling queue that wakes pods) then never sees the store behind it.
// Handlers that are added later get events at times of their own.
func First(first cache.ResourceEventHandler, i cache.SharedIndexInformer) cache.SharedIndexInformer {
	taken := false
	return &wrapped{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
		if taken {
			return h
		}
		taken = true
		return cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, initial bool) {
				first.OnAdd(obj, initial)
				h.OnAdd(obj, initial)
			},
			UpdateFunc: func(old, obj any) {
				first.OnUpdate(old, obj)
				h.OnUpdate(old, obj)
			},
			DeleteFunc: func(obj any) {
				first.OnDelete(obj)
				h.OnDelete(obj)
			},
		}
	}}
}

// ByUID returns the informer with namesakes kept apart: when an object was deleted and recreated in a gap of the watch,
// the informer delivers one update from the old object to the new one; handlers get a deletion and an addition.
func ByUID(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &wrapped{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: h.OnAdd, DeleteFunc: h.OnDelete,
			UpdateFunc: func(old, obj any) {
				was, errWas := meta.Accessor(old)
				object, errIs := meta.Accessor(obj)
				if errWas == nil && errIs == nil && was.GetUID() != object.GetUID() {
					h.OnDelete(old)
					h.OnAdd(obj, false)
				} else {
					h.OnUpdate(old, obj)
				}
			},
		}
	}}
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
	return &wrapped{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(obj any, initial bool) { h.OnAdd(apply(obj), initial) },
			UpdateFunc: func(old, obj any) { h.OnUpdate(apply(old), apply(obj)) },
			DeleteFunc: func(obj any) { h.OnDelete(apply(obj)) },
		}
	}}
}

// wrapped is an informer that gives each handler which is added to it to wrap, and adds what that returns.
type wrapped struct {
	cache.SharedIndexInformer
	wrap func(cache.ResourceEventHandler) cache.ResourceEventHandler
}

func (t *wrapped) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return t.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (t *wrapped) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return t.SharedIndexInformer.AddEventHandlerWithOptions(t.wrap(h), o)
}

// Get returns an object of an informer's cache; nil where there is none. A cache does not fail.
func Get[T any](i cache.SharedIndexInformer, key string) *T {
	object, _, _ := i.GetStore().GetByKey(key)
	typed, _ := object.(*T)
	return typed
}
