package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// stateKey is where a scheduling cycle has its Cycle.
const stateKey fwk.StateKey = "Placement"

// Cycle is what one scheduling cycle knows of its pod. A cycle without it does not concern us.
type Cycle struct {
	// store has the live accounts.
	store *kube.Store
	// others are those of Decisions.
	others Others
	// Request is what the pod asks for. Requests are shared by all cycles of a pod, so it must not be changed.
	Request *place.Request
	// signature is the signature of the request if the back-off of any kubelet was active when the cycle began; else it
	// is empty, and Filter looks for no back-off.
	signature string

	// counted are the amounts of vendors' resources that a node must have free if it leaves devices to its kubelet.
	counted []counted

	// node is the node of the dry run under way; empty outside of one. The framework clones the state for each node.
	node string
	// changed is the view of that node with the pods that the dry run has removed or added; nil outside of one.
	changed *kube.NodeView
	// within is the Reservation that a dry run looks into, and restricted whether it looks at its room alone.
	within     string
	restricted bool
	// decision is the one that made the cycle. ahead says that changed is an account of a later time, as LookAhead
	// describes, and lacking why a pod that was added does not fit there.
	decision *decision
	ahead    bool
	lacking  why.Reason
	// trial has the accounts that the cycle reads instead of the live ones; nil for a pod that is not on trial.
	trial *Trial

	// Offer is what was reserved for the pod on the node reserved.
	Offer ledger.Offer
	// view is the account that the offer was computed on.
	view *ledger.View
	// reserved is the node on which the offer holds; empty before Reserve and after Unreserve.
	reserved string
	// adapt is a copy of Sharing.Adapt.
	adapt bool
	// recorder is the name under which PreBind writes. It is set before PreBind runs under two names at once.
	recorder string
	// recorded is true once PreBind has sent the allocation. From then on another binder may have bound the pod with
	// it.
	recorded bool
}

// Clone copies the state for a dry run. Requests, views and offers are never changed in place.
func (c *Cycle) Clone() fwk.StateData {
	copied := *c
	return &copied
}

// Read returns what a scheduling cycle knows of its pod, nil for a pod that does not concern us.
func Read(cs fwk.CycleState) *Cycle { return State[*Cycle](cs, stateKey) }

// State returns what a cycle has stored under a key. It returns the zero value if the key is absent or has another
// type.
func State[T fwk.StateData](cs fwk.CycleState, key fwk.StateKey) (s T) {
	if data, err := cs.Read(key); err == nil {
		s, _ = data.(T)
	}
	return s
}

// View returns the account of the node that the cycle must use: the one of the dry run under way, else the one of the
// trial, else the live one.
func (c *Cycle) View(node string) *ledger.View { return c.nodeView(node).View }

// Use says that the dry run looks into the Reservation with this UID.
func (c *Cycle) Use(uid string) { c.within = uid }

// Enter changes the cycle's view of the node to what a pod finds that uses the Reservation with this UID alone: only
// what the Reservation keeps is free.
func (c *Cycle) Enter(node, uid string) {
	c.within, c.restricted = uid, true
	c.node, c.changed = node, kube.NewNodeView(c.unchanged(node).View.Inside(uid))
}

// LookAhead begins to look at a later time of a node: the pod of the cycle gets the very CPUs and devices there that it
// would get now. Pods that leave until then are removed afterwards, and pods are added that start then: each of these
// must get what it asks for. It returns false where that cannot be known: a kubelet decides, for example, or a topology
// policy lets CPUs depend on the devices of claims.
func LookAhead(cs fwk.CycleState, pod *corev1.Pod, node string, starts []fwk.PodInfo) bool {
	c := Read(cs)
	if c == nil {
		return true
	}
	v := c.View(node)
	if c.within != "" {
		v = c.unchanged(node).View // the Reservation keeps what the pod leaves of it
	}
	offer, reason := c.decision.tryInside(v, requestOn(cs, node, c.Request), pod, node, c.within, c.restricted)
	if !reason.OK() || follows(offer) {
		return false
	}
	follow := func(p *corev1.Pod) bool { // its CPUs depend on the devices of its claims
		r, refused := c.decision.request(p)
		return len(p.Spec.ResourceClaims) > 0 && refused == nil && r.AlignsClaims(v)
	}
	if follow(pod) || slices.ContainsFunc(starts, func(i fwk.PodInfo) bool { return follow(i.GetPod()) }) {
		return false
	}
	c.node, c.changed, c.ahead = node, kube.NewNodeView(v.With(offer.Entry)), true
	return true
}

// start adds a pod to the account of a later time.
func (c *Cycle) start(pod *corev1.Pod) {
	r, refused := c.decision.request(pod)
	v := c.changed.View
	if refused != nil || !c.decision.concerns(r) || v.Machine() == nil && r.Devices == nil {
		return
	}
	offer, reason := place.Try(v, r)
	if !reason.OK() {
		c.lacking = reason
		return
	}
	c.changed = kube.NewNodeView(v.With(offer.Entry))
}

// requestOn is what the pod of a cycle asks of a node where its ResourceClaims and its gang have devices.
func requestOn(cs fwk.CycleState, node string, r *place.Request) *place.Request {
	return State[*joint](cs, jointKey).on(node, State[*claimed](cs, claimedKey).on(node, r))
}

// nodeView is View together with the memory of answers that belongs to the view.
func (c *Cycle) nodeView(node string) *kube.NodeView {
	if c.changed != nil && c.node == node {
		return c.changed
	}
	return c.unchanged(node)
}

// unchanged is nodeView outside of a dry run.
func (c *Cycle) unchanged(node string) *kube.NodeView {
	if c.trial != nil {
		return c.trial.view(node)
	}
	return c.store.NodeView(node)
}
