package tenancy

import (
	"reflect"
	"slices"

	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Guest is a bound pod as the node's kubelet sees it. It must not be changed.
type Guest struct {
	// Pod is what the pod asks of the kubelet's managers.
	Pod *kubelet.Pod
	// Created is when the pod was created, in seconds since the epoch. A kubelet admits a batch of pods in this order.
	Created int64
	// Prediction is what the scheduler expects the kubelet to give the pod. nil if the scheduler made no prediction.
	Prediction *Prediction
}

// Prediction is a placement that the scheduler predicted when it bound a pod.
type Prediction struct {
	// Model is the kubelet's release, "1.36".
	Model string
	// Gen is the generation of the node's report that the prediction is based on. A report confirms or contradicts the
	// prediction only if the report's generation is higher.
	Gen int64
	// Held is the predicted placement, in the order of the pod's containers.
	Held []kubelet.Held
}

// CPUs returns how many exclusive CPUs a static CPU manager gives the pod; 0 for a nil guest.
func (g *Guest) CPUs() int {
	if g == nil {
		return 0
	}
	return g.Pod.CPUs()
}

// Equal reports whether two guests are the same; each may be nil.
func (g *Guest) Equal(o *Guest) bool { return reflect.DeepEqual(g, o) }

// isCertain reports whether the kubelet would give exactly the prediction if its model is right: no part of the
// prediction depends on a device plugin's choice or on the order of a Go map.
func (p *Prediction) isCertain() bool {
	return !slices.ContainsFunc(p.Held, func(h kubelet.Held) bool {
		return h.Uncertain || slices.ContainsFunc(h.Devices, func(d kubelet.HeldDevices) bool { return d.Open })
	})
}

// Tenant is a guest of one machine. It never changes.
type Tenant struct {
	UID, Namespace, Name string
	*Guest
	// Predicted is Guest.Prediction, translated to the machine; nil without a prediction.
	Predicted kubelet.Placement
}

// NewTenant translates a guest's prediction to m.
func NewTenant(m *topo.Machine, uid, namespace, name string, g *Guest) *Tenant {
	t := &Tenant{UID: uid, Namespace: namespace, Name: name, Guest: g}
	if g.Prediction != nil {
		t.Predicted = kubelet.PlacementOf(m, g.Prediction.Held)
	}
	return t
}
