package placement

import (
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
)

// claimedKey is where a cycle has the devices that ResourceClaims give its pod.
const claimedKey fwk.StateKey = "PlacementClaimed"

// claimed is the NUMA nodes of devices that ResourceClaims give a pod on one node.
type claimed struct {
	node   string
	nodes  topo.NodeSet
	spread int
}

// Clone returns c: it is never changed.
func (c *claimed) Clone() fwk.StateData { return c }

// on returns the request of a pod for a node, beside the devices if the node is theirs. c may be nil.
func (c *claimed) on(node string, r *place.Request) *place.Request {
	if c == nil || c.node != node || c.nodes == 0 {
		return r
	}
	return r.Beside(c.nodes, c.spread)
}

// Claim makes Reserve place a pod beside the devices that its ResourceClaims get on a node. spread is the number of
// NUMA nodes that they need on an empty machine.
func Claim(cs fwk.CycleState, node string, nodes topo.NodeSet, spread int) {
	cs.Write(claimedKey, &claimed{node, nodes, spread})
}

// Asked returns the account of a node that the pod of a cycle finds, store having the live ones, and what the pod asks
// of it apart from its ResourceClaims: nil for a pod that no node treats differently from any other.
func Asked(cs fwk.CycleState, node string, store *kube.Store) (*ledger.View, *place.Request) {
	c, trial := Read(cs), OnTrial(cs)
	switch {
	case c == nil && trial == nil:
		return store.View(node), nil
	case c == nil:
		return trial.Account(node), nil
	}
	v := c.View(node)
	if c.others == nil || c.changed != nil && c.node == node {
		return v, c.Request
	}
	uid, restricted := c.others.Chosen(cs, node)
	if uid == "" {
		return v, c.Request
	}
	if within := v.Inside(uid); restricted || place.Fits(within, c.Request).OK() {
		return within, c.Request
	}
	return v.Without(uid), c.Request
}

// AsksForDevices returns what a pod asks of a node; nil for one that asks for no devices apart from ResourceClaims.
func (p *Plugin) AsksForDevices(pod *corev1.Pod) *place.Request {
	if r, refused := p.request(pod); refused == nil && r.Devices != nil {
		return r
	}
	return nil
}

// Offered returns what the pod of a cycle would get of a node with an account; false where it does not fit.
func Offered(cs fwk.CycleState, pod *corev1.Pod, node string, v *ledger.View) (e ledger.Entry, fits bool) {
	c := Read(cs)
	if c == nil {
		return e, true
	}
	offer, reason := c.decision.tryInside(v, requestOn(cs, node, c.Request), pod, node, c.within, c.restricted)
	return offer.Entry, reason.OK()
}
