package kube

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Kinds are the kinds of devices that Device objects list, beside those that are known without. The zero value is
// ready. Its methods are safe for concurrent use.
type Kinds struct {
	mu      sync.Mutex          // guards counted
	counted map[device.Kind]int // nodes that have devices of the kind
	listed  atomic.Pointer[device.Kinds]
}

// Load returns the kinds; nil before any is listed. It is another pointer when they have changed.
func (k *Kinds) Load() *device.Kinds { return k.listed.Load() }

// List returns the kinds.
func (k *Kinds) List() device.Kinds {
	if listed := k.Load(); listed != nil {
		return *listed
	}
	return nil
}

// Handler makes the kinds follow an informer of Device objects, which must see each object once.
func (k *Kinds) Handler() cache.ResourceEventHandler {
	kindsOf := func(object any) device.Kinds {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if d, ok := object.(*devicev1alpha1.Device); ok {
			return convert.DeviceKinds(d)
		}
		return nil
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.change(nil, kindsOf(object)) },
		UpdateFunc: func(last, next any) { k.change(kindsOf(last), kindsOf(next)) },
		DeleteFunc: func(object any) { k.change(kindsOf(object), nil) },
	}
}

// change counts the kinds of a node in place of those that it had before.
func (k *Kinds) change(before, after device.Kinds) {
	if slices.Equal(before, after) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counted == nil {
		k.counted = map[device.Kind]int{}
	}
	for _, kind := range after {
		k.counted[kind]++
	}
	for _, kind := range before {
		if k.counted[kind]--; k.counted[kind] == 0 {
			delete(k.counted, kind)
		}
	}
	kinds := device.Kinds(slices.SortedFunc(maps.Keys(k.counted), func(a, b device.Kind) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Resource, b.Resource), cmp.Compare(b.Unit, a.Unit))
	}))
	if old := k.Load(); old == nil || !slices.Equal(*old, kinds) {
		k.listed.Store(&kinds)
	}
}
