package place

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Fits reports from the view's summary whether Try would grant r. It costs O(NUMA nodes), and allocates
// nothing; where memory takes part it looks at no more than allSets sets of NUMA nodes, or takes searchSteps steps.
// Where the node could not give r its devices even without other pods, that comes before what a pod that ends or
// another topology policy would cure.
func Fits(v *ledger.View, r *Request) why.Reason {
	r = r.at(v)
	reason := fits(v, r)
	if r.Devices != nil && YieldsToDevices(reason) {
		if lack := lackedDevices(v, r); !lack.OK() {
			return lack
		}
	}
	return reason
}

// Refusals returns why v's node refuses r, each code once; nil if Fits is OK. The reason of Fits comes first. Then come
// those that it hides: of the pod without its devices, and of the devices by themselves.
func Refusals(v *ledger.View, r *Request) []why.Reason {
	first := Fits(v, r)
	if r = r.at(v); first.OK() || r.Devices == nil {
		return nonzero(first)
	}
	others, devices := *r, *r
	others.Devices = nil
	devices.DevicesApart = true
	return nonzero(first, fits(v, &others), fitsDevices(v, &devices, nil))
}

// nonzero returns the reasons that refuse, the first of each code.
func nonzero(reasons ...why.Reason) (out []why.Reason) {
	for _, reason := range reasons {
		known := slices.ContainsFunc(out, func(o why.Reason) bool { return o.Code == reason.Code })
		if !reason.OK() && !known {
			out = append(out, reason)
		}
	}
	return out
}

// YieldsToDevices reports whether a pod that ends or another topology policy may cure a refusal, so that devices that
// the node does not have at all are the better reason.
func YieldsToDevices(reason why.Reason) bool {
	switch reason.Code {
	case why.None:
		return false
	case why.TopologyPolicy, why.TopologyMismatch, why.TopologyUndecided:
		return true
	}
	return reason.Code.Entry().Resolvable
}

// fits reports why a node does not take the pod, by its summary; the zero value if it does.
func fits(v *ledger.View, r *Request) why.Reason {
	if r.Role.Binds() && r.CPUs == 0 {
		return why.Reason{Code: why.CPURequestNotInteger, Resource: why.CPU, Unit: why.MilliCPU, Asked: r.RequestMilli}
	}
	if reason := r.acceptsKubelet(v.Facts()); !reason.OK() {
		return reason
	}
	if reason := r.unconfined(v.Facts()); !reason.OK() {
		return reason
	}
	if r.followed(v.Facts()) {
		if reason := fitsFollowed(v, r); !reason.OK() {
			return reason
		}
		return cmp.Or(fitsClaims(v, r, nil), fitsDevices(v, r, nil))
	}
	var cpus order
	if r.CPUs > 0 {
		if reason := cpus.checkCPUs(v, r); !reason.OK() {
			return reason
		}
	} else if r.wantsPool() {
		var j joint
		if j.askPool(v, r) {
			reason := j.fitsPool()
			if !reason.OK() && j.allowForDevices(v, r) {
				wide := j.wide
				j = joint{}
				j.askPool(v, r)
				j.wide = wide
				reason = j.fitsPool()
			}
			if !reason.OK() {
				return reason
			}
		}
	}
	if reason := guard(v, r); !reason.OK() {
		return reason
	}
	return cmp.Or(fitsClaims(v, r, &cpus), fitsDevices(v, r, &cpus))
}

// Try computes the offer for r, or says why there is none. A pod that neither binds nor is confined gets an offer too:
// it may still take CPUs of a static kubelet.
func Try(v *ledger.View, r *Request) (ledger.Offer, why.Reason) {
	if reason := Fits(v, r); !reason.OK() {
		return ledger.Offer{}, reason
	}
	uid, namespace, name := r.UID, r.Namespace, r.Name
	r = r.at(v)
	offer := ledger.Offer{
		Entry: ledger.Entry{
			UID: uid, Namespace: namespace, Name: name, Class: r.Class, Role: r.Role,
		},
		Version: v.Version(),
	}
	var o order
	if r.CPUs > 0 && !r.followed(v.Facts()) {
		o.checkCPUs(v, r)
	}
	devices := chooseDevices(v, r, &o)
	offer.Entry.Devices = devices.Grants
	if r.followed(v.Facts()) {
		return complete(v, r, offer)
	}
	if r.CPUs > 0 {
		result, held, reason := o.take(v, r, devices.Nodes|r.Claimed)
		if !reason.OK() {
			return ledger.Offer{}, reason
		}
		offer.Entry.CPUList = v.Machine().FormatList(result.CPUs)
		offer.Entry.Exclusive, offer.Entry.Amounts = r.Exclusive, held
		offer.CPUs, offer.Stage = result.CPUs, result.Stage
		offer.Nodes = v.Machine().NodesOf(&result.CPUs) | holding(v.Machine(), held) | devices.Nodes
	} else if r.wantsPool() {
		var j joint
		if j.askPool(v, r) {
			j.allowForDevices(v, r)
			j.excludeMixed()
			j.joinDevices(v, r, &o, devices.Nodes|r.Claimed)
			offer.Nodes = j.choose()
			offer.Entry.Amounts = j.place(offer.Nodes, offer.Nodes)
			offer.Entry.NUMAIDs, offer.Entry.MilliCPU = v.Machine().NodeIDs(offer.Nodes), r.RequestMilli
		}
	}
	return complete(v, r, offer)
}
