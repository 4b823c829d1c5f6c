package placement

import (
	"maps"
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
)

// trialKey is where an attempt has its Trial.
const trialKey fwk.StateKey = "PlacementTrial"

// Trial is the accounts of nodes as they would be with other pods. It reads the store and never writes to it, so that
// dropping it undoes all. Accounts of nodes may be read and changed by several goroutines, each on nodes of its own;
// the rest is not safe for concurrent use, apart from readers.
type Trial struct {
	// store has the accounts of all nodes that are not in views.
	store *kube.Store
	mu    sync.RWMutex // guards views and left
	// views are the accounts that differ, by node. They do not follow the store: a trial lives within one cycle.
	views map[string]*kube.NodeView
	// left are the pods that have left their nodes.
	left map[string]bool
	// imagined is true once a node was added that is like none in the store. What the store knows of all nodes together
	// then does not hold for the trial.
	imagined bool
	// Rooms are the Reservations on trial; nil before a pod uses one.
	Rooms *kube.ReservationTrial
	// Loads are the pods that are assigned on trial.
	Loads kube.LoadTrial
}

// NewTrial returns the accounts as they are.
func NewTrial(store *kube.Store) *Trial {
	return &Trial{store: store, views: map[string]*kube.NodeView{}, left: map[string]bool{}}
}

// OnTrial returns the trial that an attempt is on, nil for one that is on none.
func OnTrial(cs fwk.CycleState) *Trial { return State[*Trial](cs, trialKey) }

// Clone returns t: a dry run changes views of its own.
func (t *Trial) Clone() fwk.StateData { return t }

// Mark puts an attempt on trial: what is reserved in it is reserved in t alone, and no metric counts it.
func (t *Trial) Mark(cs fwk.CycleState) { cs.Write(trialKey, t) }

// Take removes a pod from the account of a node.
func (t *Trial) Take(node, uid string) { t.change(node, t.view(node).Without(uid)) }

// Put adds what a pod has to the account of a node.
func (t *Trial) Put(node string, e ledger.Entry) { t.change(node, t.view(node).With(e)) }

// Leave removes a pod from the account of a node, with the ResourceClaims that end with it.
func (t *Trial) Leave(node, uid string) {
	t.change(node, t.view(node).Leave(uid))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left[uid] = true
}

// Return takes a pod back that has left, with what it has in the store.
func (t *Trial) Return(node, uid string) {
	t.change(node, t.view(node).Return(uid, t.store.View(node)))
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.left, uid)
}

// FollowClaims takes over which ResourceClaims have devices of a node. Claims of an attempt are in the store, as it
// gives back what it has reserved.
func (t *Trial) FollowClaims(node string) {
	t.mu.RLock()
	own, left := t.views[node], slices.Collect(maps.Keys(t.left))
	t.mu.RUnlock()
	if own == nil {
		return
	}
	now, v := t.store.View(node), own.View
	for _, uid := range left {
		now = now.Leave(uid)
	}
	for e := range own.Entries() {
		if _, remains := now.Entry(e.UID); e.IsClaim() && !remains {
			v = v.Without(e.UID)
		}
	}
	for e := range now.Entries() {
		if e.IsClaim() {
			v = v.With(e)
		}
	}
	t.change(node, v)
}

// Account returns the account of a node.
func (t *Trial) Account(node string) *ledger.View { return t.view(node).View }

// Likeness is that of the account of a node.
func (t *Trial) Likeness(node string) string { return t.view(node).Likeness() }

// Add adds the account of a node that is like another one without pods.
func (t *Trial) Add(node, like string) {
	v := t.store.View(like)
	for e := range v.Entries() {
		v = v.Without(e.UID)
	}
	t.change(node, v)
}

// Imagine adds the account of a node that is like none, without pods.
func (t *Trial) Imagine(node string, v *ledger.View) {
	t.change(node, v)
	t.imagined = true
}

// Next prepares a cycle on trial, whose PreFilter has run, for another pod that differs in its UID alone. It saves the
// parsing of equal pods.
func (t *Trial) Next(cs fwk.CycleState, uid string) {
	s := Read(cs)
	if s == nil {
		return
	}
	r, next := *s.Request, *s
	r.UID = uid
	if r.OnPolicyNodes != nil {
		there := *r.OnPolicyNodes
		there.UID, r.OnPolicyNodes = uid, &there
	}
	next.Request, next.Offer, next.view, next.reserved = &r, ledger.Offer{}, nil, ""
	cs.Write(stateKey, &next)
}

// change replaces the account of a node. Readers see either the old or the new one.
func (t *Trial) change(node string, v *ledger.View) {
	changed := kube.NewNodeView(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.views[node] = changed
}

// view returns the account of a node: the changed one, or that of the store.
func (t *Trial) view(node string) *kube.NodeView {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if v := t.views[node]; v != nil {
		return v
	}
	return t.store.NodeView(node)
}
