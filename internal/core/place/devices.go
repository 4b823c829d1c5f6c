package place

import (
	"iter"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// beside is how devices and the rest of a pod meet on NUMA nodes: spread holds for both together.
type beside struct {
	joint
	asks bool // CPUs or a shared pool are chosen with the devices
}

// chooseDevices decides which devices r gets where Tenon gives them out, o being what checkCPUs says of its CPUs. On
// other nodes whole GPUs by their vendor's name are left to the kubelet and to who counts for it.
func chooseDevices(v *ledger.View, r *Request, o *order) device.Choice {
	if _, gives := givesDevices(v, r); !gives {
		return device.Choice{}
	}
	options := r.Options
	options.Accept = accept(v, r, o)
	choice, _ := v.Devices().Choose(r.Devices, &options)
	return choice
}

// DeviceSets yields the sets of devices that r could get on a node that gives devices out, in the order in which they
// are preferred; none elsewhere.
func DeviceSets(v *ledger.View, r *Request) iter.Seq[device.Choice] {
	r = r.at(v)
	if _, gives := givesDevices(v, r); !gives {
		return func(func(device.Choice) bool) {}
	}
	var o order
	if r.CPUs > 0 && !r.followed(v.Facts()) {
		o.checkCPUs(v, r)
	}
	options := r.Options
	options.Accept = accept(v, r, &o)
	return v.Devices().Sets(r.Devices, &options)
}

// fitsDevices reports why chooseDevices chooses none.
func fitsDevices(v *ledger.View, r *Request, o *order) why.Reason {
	reason, gives := givesDevices(v, r)
	if !gives {
		return reason
	}
	if question := accept(v, r, o); question != nil {
		options := r.Options
		options.Accept = question
		return deviceReason(v.Devices().Fits(r.Devices, &options))
	}
	return deviceReason(v.Devices().Fits(r.Devices, &r.Options))
}

// givesDevices reports whether Tenon gives r devices of the node; else why not, where that is a refusal.
func givesDevices(v *ledger.View, r *Request) (reason why.Reason, gives bool) {
	switch f := v.Facts(); {
	case r.Devices == nil:
		return why.Reason{}, false
	case f.Devices != nil && f.OwnDevices && r.GPUIsolation != "" && r.GPUIsolation != f.GPUIsolation:
		return why.Reason{Code: why.GPUIsolationMissing}, false
	case f.Devices != nil && f.OwnDevices && v.UnknownHolders() > 0:
		return why.Reason{Code: why.ForeignDevices, Extra: int64(v.UnknownHolders())}, false
	case f.Devices != nil && f.OwnDevices:
		return why.Reason{}, true
	case r.Devices.LeftToKubelet():
		return why.Reason{}, false
	case f.Devices == nil:
		return why.Reason{Code: why.DeviceMissing}, false
	}
	return why.Reason{Code: why.DevicesOfKubelet}, false
}

// lackedDevices reports why the node would not give r devices if no pod held any.
func lackedDevices(v *ledger.View, r *Request) why.Reason {
	reason, gives := givesDevices(v, r)
	switch {
	case gives && deviceReason(withoutHolders(v).Fits(r.Devices, &r.Options)).OK():
		return why.Reason{}
	case gives:
		return deviceReason(v.Devices().Fits(r.Devices, &r.Options))
	case reason.Code == why.ForeignDevices: // until these are released
		return why.Reason{}
	}
	return reason
}

// withoutHolders is the devices of a node while no pod holds any.
func withoutHolders(v *ledger.View) *device.View {
	return device.NewView(v.Facts().Devices, func(func(*device.Holding) bool) {})
}

// accept returns the question whether the rest of the pod can be had with devices on NUMA nodes; nil where the topology
// policies allow everything.
func accept(v *ledger.View, r *Request, o *order) func(topo.NodeSet) bool {
	policy := max(v.Facts().Topology, r.Topology)
	if policy < hint.Restricted || r.DevicesApart {
		return nil
	}
	var question func(topo.NodeSet) bool
	if v.Machine() != nil && r.followed(v.Facts()) {
		question = onPredicted(v, r)
	} else {
		question = withDevices(v, r, o).accepts
	}
	if r.Claimed == 0 {
		return question
	}
	return func(nodes topo.NodeSet) bool { return question(nodes | r.Claimed) }
}

// onPredicted is the question whether NUMA nodes are among those that the kubelet is predicted to choose.
func onPredicted(v *ledger.View, r *Request) func(topo.NodeSet) bool {
	placement, _ := predict(v, r)
	mask := touched(v.Machine(), placement)
	return func(nodes topo.NodeSet) bool { return mask == 0 || nodes.Within(mask) }
}

// withDevices makes the question for CPUs or shared pools beside devices. Devices may be on as many NUMA nodes as they
// need on an empty machine, or as the CPUs need.
func withDevices(v *ledger.View, r *Request, o *order) *beside {
	b := &beside{}
	if r.CPUs > 0 {
		b.askExclusive(v, r, o)
		b.asks = true
	} else {
		b.asks = b.askPool(v, r)
	}
	b.policy = max(v.Facts().Topology, r.Topology)
	if b.policy == hint.SingleNUMANode {
		b.spread = 1
	}
	b.allowForDevices(v, r)
	if b.asks {
		b.excludeMixed()
	}
	b.spread = b.allowed()
	return b
}

// accepts reports whether the pod's devices may be on these NUMA nodes: few enough, and with room for the rest.
func (b *beside) accepts(nodes topo.NodeSet) bool {
	return nodes.Len() <= b.spread && (!b.asks || b.requireNodes(nodes))
}

// requireNodes restricts j to sets that contain those of nodes that have CPUs. It returns false if no such set holds
// the pod.
func (j *joint) requireNodes(nodes topo.NodeSet) bool {
	j.must = nodes & j.machine.NodesWithCPUs()
	return j.choose() != 0
}

// allowForDevices lets the rest of a pod use as many NUMA nodes as its devices need, and reports whether these are more
// than the policy allows.
func (j *joint) allowForDevices(v *ledger.View, r *Request) bool {
	if j.policy == hint.Restricted && !r.DevicesApart {
		if j.wide = r.ClaimSpread; r.Devices != nil {
			if _, gives := givesDevices(v, r); gives {
				j.wide = max(j.wide, fewestForDevices(v, r))
			}
		}
	}
	return j.wide > j.spread
}

// fewestForDevices is the number of NUMA nodes that the devices need when no pod is there.
func fewestForDevices(v *ledger.View, r *Request) int {
	empty, options := withoutHolders(v), r.Options
	for k := 1; k < topo.MaxNodes; k++ {
		options.Accept = func(nodes topo.NodeSet) bool { return nodes.Len() <= k }
		if _, reason := empty.Choose(r.Devices, &options); reason.Code != why.InsufficientNUMADevices {
			return k
		}
	}
	return topo.MaxNodes
}

// deviceReason gives a refusal its numbers.
func deviceReason(d device.Reason) why.Reason {
	r := why.Reason{Code: d.Code, Resource: why.Resource(d.Type)}
	switch d.Code {
	case why.DeviceShareUnsupported, why.SharedTemplateMissing:
		r.Resource = why.Resource(d.Model)
	case why.InsufficientDevices, why.InsufficientPartitions, why.InsufficientScopedDevices:
		r.Unit, r.Asked, r.Free = why.Count, max(d.Asked, 1), d.Free
		if d.Code == why.InsufficientScopedDevices {
			r.Free = d.InScope
		}
		if r.Free >= r.Asked { // as many are free, but not together
			r.Unit, r.Asked, r.Free = why.NoUnit, 0, 0
		}
		if d.Code == why.InsufficientDevices {
			r.Extra = d.Whole
		}
	}
	return r
}

// joinDevices restricts j to sets that contain the NUMA nodes of the chosen devices. If no such set holds the pod, j
// remains as it was: where the policy requires one, accept has chosen devices for which there is one.
func (j *joint) joinDevices(v *ledger.View, r *Request, o *order, devices topo.NodeSet) {
	if devices == 0 {
		return
	}
	before := j.spread
	j.spread = withDevices(v, r, o).spread
	if !j.requireNodes(devices) {
		j.must, j.spread = 0, before
	}
}
