package place

import (
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Promise returns the entry that holds the room of a pod that is not on the node yet, for which v has no entry: what
// the pod would get now. Where it does not fit yet, because pods that it waits for are still there, it holds all that
// is free: no other pod gets anything of what it waits for. ok is false if the pod asks v for nothing.
//
// The room is not held by exact entries in the ledger, as that of a reservation is: CPUs that other pods still have
// cannot be promised, and as these pods end the best set for the pod changes. A view with the promise is made when
// another pod is tried.
func Promise(v *ledger.View, r *Request) (e ledger.Entry, ok bool) {
	if v.Machine() == nil && r.Devices == nil {
		return e, false
	}
	if offer, reason := Try(v, r); reason.OK() {
		return offer.Entry, true
	}
	r = r.On(v.Facts())
	e = ledger.Entry{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Class: r.Class, Role: r.Role}
	free := ""
	if v.Machine() != nil {
		cpus := v.State().Free
		switch r.Isolated {
		case RequireIsolated:
			cpus = v.FreeIsolated()
		case PreferIsolated:
			cpus = cpus.Union(v.FreeIsolated())
		}
		free = v.Machine().FormatList(cpus)
	}
	switch {
	case v.Facts().Mode == ledger.Follow && v.Kubelet() != nil && r.Kubelet.CPUs() > 0:
		e.Guest = allCPUs(&v.Facts().Model, r, free)
	case r.Role.Binds():
		e.CPUList, e.Amounts = free, allMemory(v, r)
	case r.Devices == nil:
		return ledger.Entry{}, false
	}
	if r.Devices != nil && v.Devices() != nil {
		e.Devices = v.Devices().Rest(r.Devices.Types())
	}
	return e, true
}

// allMemory returns what NUMA nodes have left of the memory that a pod asks for; nil without a topology policy.
func allMemory(v *ledger.View, r *Request) []align.Amount {
	if max(r.Topology, v.Facts().Topology) == hint.None {
		return nil
	}
	m, summary := v.Machine(), v.Summary()
	var all []align.Amount
	for _, asked := range r.Needs {
		row := align.Find(summary.Rows, asked.Resource)
		if row == nil {
			continue
		}
		for i, free := range row.Free {
			all = append(all, align.Amount{NUMAID: m.NUMAID(topo.NUMA(i)), Resource: asked.Resource, N: free})
		}
	}
	return all
}

// allCPUs returns a pod to which the kubelet gives all CPUs that it has left.
func allCPUs(model *kubelet.Facts, r *Request, free string) *tenancy.Guest {
	all := kubelet.Held{CPUList: free}
	for i := range r.Kubelet.Containers {
		if c := &r.Kubelet.Containers[i]; c.CPUs > 0 {
			all.Container = c.Name
		}
	}
	return &tenancy.Guest{Pod: r.Kubelet, Created: r.Created, Prediction: &tenancy.Prediction{
		Model: model.Release(), Gen: model.Gen, Held: []kubelet.Held{all},
	}}
}
