package placement

import (
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
