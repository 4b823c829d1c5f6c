package place

import (
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// AlignsClaims reports whether a topology policy may refuse devices of ResourceClaims on NUMA nodes without room for
// the rest of r.
func (r *Request) AlignsClaims(v *ledger.View) bool {
	r = r.On(v.Facts())
	return v.Machine() != nil && !r.DevicesApart && max(v.Facts().Topology, r.Topology) >= hint.Restricted
}

// BesideClaims returns the question whether r can be had beside devices of ResourceClaims on NUMA nodes, spread being
// the number of NUMA nodes that these devices need on an empty machine. required says that a topology policy demands
// it; otherwise it is a preference, of pods with exclusive CPUs. fits is nil where neither is so, and where r does not
// fit at all.
func BesideClaims(v *ledger.View, r *Request, spread int) (fits func(topo.NodeSet) bool, required bool) {
	asked := *r
	asked.Claimed, asked.ClaimSpread = 0, spread
	if r.OnPolicyNodes != nil {
		there := *r.OnPolicyNodes
		there.Claimed, there.ClaimSpread, asked.OnPolicyNodes = 0, spread, &there
	}
	if r = asked.at(v); v.Machine() == nil || r.DevicesApart || !Fits(v, r).OK() {
		return nil, false
	}
	var o order
	if followed := r.followed(v.Facts()); r.CPUs > 0 && !followed {
		o.checkCPUs(v, r)
	} else if followed && max(v.Facts().Topology, r.Topology) < hint.Restricted {
		return onPredicted(v, r), false
	}
	if question := accept(v, r, &o); question != nil && r.Devices == nil {
		return question, true
	} else if question != nil { // its other devices must be there too
		return func(nodes topo.NodeSet) bool { return Fits(v, r.Beside(nodes, spread)).OK() }, true
	}
	b := withDevices(v, r, &o)
	if !b.asks {
		return nil, false
	}
	return func(nodes topo.NodeSet) bool {
		nodes &= v.Machine().NodesWithCPUs()
		return nodes != 0 && b.reach(nodes&b.open).rows == b.rows()
	}, false
}

// Beside returns r with the NUMA nodes of the devices that ResourceClaims give it on a node.
func (r *Request) Beside(claimed topo.NodeSet, spread int) *Request {
	with := *r
	with.Claimed, with.ClaimSpread, with.Key = claimed, spread, Key{}
	if r.OnPolicyNodes != nil {
		with.OnPolicyNodes = r.OnPolicyNodes.Beside(claimed, spread)
	}
	return &with
}

// fitsClaims refuses a node where a topology policy does not allow the devices of the claims beside the rest of r.
func fitsClaims(v *ledger.View, r *Request, o *order) why.Reason {
	if r.Claimed == 0 {
		return why.Reason{}
	}
	if question := accept(v, r, o); question != nil && !question(0) {
		return why.Reason{Code: why.ClaimNotAligned}
	}
	return why.Reason{}
}
