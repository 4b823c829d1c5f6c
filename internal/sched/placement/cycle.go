package placement

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube"
)

const stateKey fwk.StateKey = "Placement"

// Cycle is what one scheduling cycle knows of its pod. A cycle without it does not concern us.
type Cycle struct {
	store   *kube.Store
	Request *place.Request // what the pod asks for; it must not be changed
	// signature is that of the request if some kubelet's back-off was active when the cycle began; else "".
	signature string

	// counted is what nodes without devices of their own must have for the pod.
	counted []counted

	// changed is the view of node in a dry run, whose state the framework clones for each node.
	node    string
	changed *kube.NodeView
	trial   *Trial // nil for a pod that is not on trial

	// Offer is what was reserved for the pod, on the account of reserved.
	Offer    ledger.Offer
	view     *ledger.View // that the offer was computed on
	reserved string
	adapt    bool // see Sharing.Adapt
	// recorder is the name under which PreBind writes; it is set before PreBind runs under two names at once.
	recorder string
	// recorded: PreBind has written the allocation, so that another binder may have bound the pod with it.
	recorded bool
}

// Clone copies the state for a dry run. Requests, views and offers are never changed in place.
func (c *Cycle) Clone() fwk.StateData {
	copied := *c
	return &copied
}

// Read returns what a scheduling cycle knows of its pod, nil for a pod that does not concern us.
func Read(cs fwk.CycleState) *Cycle { return State[*Cycle](cs, stateKey) }

// State returns what a cycle has under a key, the zero value without.
func State[T fwk.StateData](cs fwk.CycleState, key fwk.StateKey) (s T) {
	if data, err := cs.Read(key); err == nil {
		s, _ = data.(T)
	}
	return s
}

// View returns the view that the cycle must use for the node.
func (c *Cycle) View(node string) *ledger.View { return c.nodeView(node).View }

// Enter shows a dry run the node as a pod sees it that takes all it can from a reservation.
func (c *Cycle) Enter(node, uid string) {
	now := c.store.NodeView(node)
	if c.trial != nil {
		now = c.trial.view(node)
	}
	c.node, c.changed = node, kube.NewNodeView(now.View.Inside(uid))
}

func (c *Cycle) nodeView(node string) *kube.NodeView {
	switch {
	case c.changed != nil && c.node == node:
		return c.changed
	case c.trial != nil:
		return c.trial.view(node)
	}
	return c.store.NodeView(node)
}
