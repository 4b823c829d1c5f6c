package kube

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Kinds are the kinds of devices that Device objects list, beside those that are known without. The zero value is
// ready. Its methods are safe for concurrent use.
type Kinds struct {
	mu      sync.Mutex              // guards counted and nodes
	counted map[device.Kind]int     // nodes that have devices of the kind
	nodes   map[string]device.Kinds // by name: what PutDevice has counted
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

// PutDevice counts the kinds of a Device.
func (k *Kinds) PutDevice(d *devicev1alpha1.Device) { k.put(d.Name, convert.DeviceKinds(d)) }

// RemoveDevice forgets a Device.
func (k *Kinds) RemoveDevice(d *devicev1alpha1.Device) { k.put(d.Name, nil) }

func (k *Kinds) put(node string, next device.Kinds) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nodes == nil {
		k.nodes = map[string]device.Kinds{}
	}
	last := k.nodes[node]
	if slices.Equal(last, next) {
		return
	}
	if k.nodes[node] = next; next == nil {
		delete(k.nodes, node)
	}
	k.replace(last, next)
}

// change counts the kinds of a node in place of those that it had before.
func (k *Kinds) change(before, after device.Kinds) {
	if !slices.Equal(before, after) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.replace(before, after)
	}
}

// replace is change with the lock held.
func (k *Kinds) replace(before, after device.Kinds) {
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
