package quota

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// MissingPolicy is what becomes of pods that name a quota which does not exist.
type MissingPolicy int

const (
	// MissingDefault counts them with Default and admits them there, until the quota appears.
	MissingDefault MissingPolicy = iota
	// MissingReject counts them with Default and admits none of them.
	MissingReject
)

// Rules are how an Account admits pods.
type Rules struct {
	Missing MissingPolicy
	// ByMax compares what is used with max and not with the runtime.
	ByMax bool
	// LeafOnly compares at the pod's own quota and at none above it.
	LeafOnly bool
}

// Pod is what an Account reads of a pod that has not ended.
type Pod struct {
	UID, Namespace, Name string
	// Quota is the name of the quota that the pod asks for; empty means that of its namespace.
	Quota string
	// Bound is the quota that the pod was bound in, as its record says; empty without one.
	Bound string
	// Amounts is what it asks for, and holds once it is reserved or bound. It must not be changed.
	Amounts amount.List
	// NonPreemptible pods count against min and are no victims.
	NonPreemptible bool
	Priority       int32
	Start          time.Time // zero before it starts
	Node           string    // empty until it is bound
	Leaving        bool      // it is being deleted
	// Nominated pods wait for victims to go: what they ask for is held for them.
	Nominated bool

	Gang string // identifies its gang in the cluster; empty without one
	// Claims are the ResourceClaims that the pod uses, by Charge.ID. It must not be changed.
	Claims []string
	// Room says that the pod stands for a Reservation: pods that use the Reservation will hold what it holds.
	Room bool
}

// State is what a pod holds of its quota.
type State int

// States. A pending pod counts in Request; one that is reserved or bound also counts in Used.
const (
	Pending State = iota
	Reserved
	Bound
)

// Account is the pods of a cluster, each in the quota that it belongs to, around a Forest. Its state depends on what it
// was given last of each pod and quota, and on the reservations, not on the order: duplicates and replays change
// nothing. It is not safe for concurrent use.
//
//	label of the pod ─┐                                    ┌─► Request, Used ─► Forest
//	its namespace ────┴─► group ─► quota, moved as a whole ┘
type Account struct {
	rules                  Rules
	forest                 *Forest
	root, system, fallback *Quota               // Root, System and Default
	pods                   map[string]*entry    // by UID
	nominated              map[string]*entry    // of these, those that are pending and nominated
	leaving                map[string]*entry    // of these, those that hold their amounts and are being deleted
	rooms                  map[string]*entry    // of these, those of Reservations that hold their amounts
	groups                 map[PodsOf]*group    // Invariant: none is empty.
	groupsOf               map[*Quota][]*group  // the same, by the quota that they count with
	gangs                  map[string]members   // by Pod.Gang. Invariant: none is empty.
	bonds                  map[string]gang.Bond // by Pod.Gang; also of gangs without pods
	starts                 map[string]*start    // by Pod.Gang: members that were admitted together
	mapping                *Mapping             // of the forest's specs
	charges                map[string]*charge   // by ID: claims that are known or that pods use

	claims []claim // of the check under way
}

// group is all pods that name one quota, or of one namespace those that name none, of one record.
type group struct {
	key     PodsOf
	quota   *Quota
	missing bool // the quota that the pods name does not exist; they count with Default
	pods    map[string]*entry
}

// entry is a pod with what the account derives from it. group is nil only while the pod is moved between groups.
type entry struct {
	pod    Pod
	vector Vector // Amounts
	group  *group
	state  State
	charge *charge // what the entry counts; nil for a pod
}

// NewAccount returns an account without quotas, nodes and pods.
func NewAccount(c Config, r Rules) *Account {
	f := New(c)
	return &Account{
		rules: r, forest: f, root: f.Find(Root), system: f.Find(System), fallback: f.Find(Default),
		pods: map[string]*entry{}, nominated: map[string]*entry{}, leaving: map[string]*entry{},
		rooms: map[string]*entry{}, groups: map[PodsOf]*group{},
		groupsOf: map[*Quota][]*group{}, gangs: map[string]members{},
		bonds: map[string]gang.Bond{}, starts: map[string]*start{}, mapping: NewMapping(nil),
		charges: map[string]*charge{},
	}
}

// Forest returns the quotas, for reading: they are changed through the account alone.
func (a *Account) Forest() *Forest { return a.forest }

// Set adds a quota or replaces its spec, and moves the pods that belong elsewhere now.
func (a *Account) Set(s Spec) {
	clear(a.starts)
	was := a.unmap(s.Name)
	a.forest.Set(s)
	if !isReserved(s.Name) {
		a.mapping.add(&a.forest.Find(s.Name).spec)
	}
	a.regroup(s.Name, was, append([]string{s.Namespace}, s.Namespaces...))
}

// Unset forgets a quota, and moves its pods.
func (a *Account) Unset(name string) {
	clear(a.starts)
	was := a.unmap(name)
	a.forest.Remove(name)
	a.regroup(name, was)
}

// SetNodes sets what the counted nodes have together.
func (a *Account) SetNodes(amounts amount.List) { a.forest.SetNodes(amounts) }

// Put adds a pod or replaces what is known of it. A pod with a node is bound; one without keeps its reservation.
func (a *Account) Put(p Pod) {
	e, k := a.pods[p.UID], p.key()
	var claims []string // until now
	if e != nil {
		claims = e.pod.Claims
	}
	if e != nil && e.counts(&p) {
		a.part(e)
		e.pod, e.state = p, e.next(&p)
		a.join(e)
		a.track(e)
		return
	}
	if e == nil {
		e = &entry{}
		a.pods[p.UID] = e
	} else {
		a.count(e, (*Forest).Subtract)
		a.leave(e)
		a.part(e)
	}
	e.pod, e.state, e.vector = p, e.next(&p), a.forest.Vector(p.Amounts)
	g := a.groups[k]
	if g == nil {
		g = &group{key: k, pods: map[string]*entry{}}
		g.quota, g.missing = a.QuotaOf(k)
		a.groups[k] = g
		a.groupsOf[g.quota] = append(a.groupsOf[g.quota], g)
	}
	g.pods[p.UID], e.group = e, g
	a.count(e, (*Forest).Add)
	a.join(e)
	a.track(e)
	a.use(p.UID, claims, p.Claims)
}

// Remove forgets a pod that has ended or is gone.
func (a *Account) Remove(uid string) {
	if e := a.pods[uid]; e != nil {
		a.count(e, (*Forest).Subtract)
		a.leave(e)
		a.part(e)
		delete(a.pods, uid)
		delete(a.nominated, uid)
		delete(a.leaving, uid)
		delete(a.rooms, uid)
		a.use(uid, e.pod.Claims, nil)
	}
}

// Nominate holds for a pending pod what it asks for, as victims go to make room for it: pods of its own quota of no
// higher priority are admitted to what is left above that. It ends when the pod is reserved or bound, by Withdraw, and
// by a Put that says otherwise.
func (a *Account) Nominate(uid string) { a.nominate(uid, true) }

// Withdraw takes a nomination back.
func (a *Account) Withdraw(uid string) { a.nominate(uid, false) }

// nominate records whether a pod is nominated to a node. It does nothing for an unknown pod.
func (a *Account) nominate(uid string, nominated bool) {
	if e := a.pods[uid]; e != nil {
		e.pod.Nominated = nominated
		a.track(e)
	}
}

// track keeps the indices of nominated pods, of pods that leave, and of Reservations.
func (a *Account) track(e *entry) {
	delete(a.nominated, e.pod.UID)
	delete(a.leaving, e.pod.UID)
	delete(a.rooms, e.pod.UID)
	if e.pod.Room && e.state != Pending {
		a.rooms[e.pod.UID] = e
	}
	switch {
	case e.state != Pending && e.pod.Leaving:
		a.leaving[e.pod.UID] = e
	case e.state == Pending && e.pod.Nominated:
		a.nominated[e.pod.UID] = e
	}
}

// Reserve makes pending pods hold what they ask for if Admit does: all of them, or none. Those that hold it already,
// and pods that are gone, change nothing.
func (a *Account) Reserve(uids ...string) *Excess {
	if x := a.Admit(uids...); x != nil {
		return x
	}
	for _, uid := range uids {
		if e := a.pods[uid]; e != nil && e.state == Pending {
			a.turn(e, Reserved)
		}
	}
	return nil
}

// Release takes reservations back. Pods that are bound keep what they hold.
func (a *Account) Release(uids ...string) {
	for _, uid := range uids {
		if e := a.pods[uid]; e != nil && e.state == Reserved {
			a.turn(e, Pending)
		}
	}
}

// Member is a pod of a quota.
type Member struct {
	Pod
	Uses  Vector // Amounts, and those of the claims that count with the pod and end with it
	State State
	Quota *Quota
	// Missing reports that the quota which the pod names does not exist.
	Missing bool
}

// Find returns a pod; false for one that is not known.
func (a *Account) Find(uid string) (Member, bool) {
	e := a.pods[uid]
	if e == nil {
		return Member{}, false
	}
	return a.member(e), true
}

// RunTime returns how long a pod runs by its quota: by the closest one above it that says so; 0 for unknown.
func (a *Account) RunTime(uid string) time.Duration {
	e := a.pods[uid]
	if e == nil {
		return 0
	}
	for q := e.group.quota; q != nil; q = q.Parent() {
		if q.spec.RunTime > 0 {
			return q.spec.RunTime
		}
	}
	return 0
}

// Members returns the pods that count with a quota itself, by namespace, name and UID.
func (a *Account) Members(q *Quota) []Member {
	var out []Member
	for _, g := range a.groupsOf[q] {
		for _, e := range g.pods {
			if e.charge == nil {
				out = append(out, a.member(e))
			}
		}
	}
	slices.SortFunc(out, func(x, y Member) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
	})
	return out
}

// Counts returns how many pods there are of each namespace and name of a quota.
func (a *Account) Counts() map[PodsOf]int {
	counts := map[PodsOf]int{}
	for _, e := range a.pods {
		counts[PodsOf{e.pod.Namespace, e.pod.Quota, e.pod.key().Bound}]++
	}
	return counts
}

// QuotaOf returns the quota of pods. missing reports that they name one that does not exist and count with Default.
func (a *Account) QuotaOf(p PodsOf) (q *Quota, missing bool) {
	name, found := a.mapping.Of(p)
	return a.forest.Find(name), !found
}

// Namespaces returns those whose pods may belong to another quota than Default although they name none, ascending.
func (a *Account) Namespaces() []string { return a.mapping.namespaces() }

// Hash identifies the state: what all reports say, and each pod with its quota and what it holds.
func (a *Account) Hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, a.forest.Reports()) // maps are printed by ascending key
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		e := a.pods[uid]
		fmt.Fprintln(h, uid, e.state, e.group.quota.Name(), e.group.missing, e.pod)
	}
	return h.Sum64()
}

// key returns what decides about the quota of a pod: the quota that it names, else its namespace, and its record.
func (p *Pod) key() PodsOf {
	k := PodsOf{Quota: p.Quota}
	if p.Quota == "" {
		k.Namespace = p.Namespace
	}
	if p.Node != "" && p.Bound != p.Quota {
		k.Bound = p.Bound
	}
	return k
}

// next is the state of an entry after p.
func (e *entry) next(p *Pod) State {
	switch {
	case p.Node != "":
		return Bound
	case e.state == Bound:
		return Pending
	}
	return e.state
}

// counts reports whether p counts as the entry does already.
func (e *entry) counts(p *Pod) bool {
	return e.pod.key() == p.key() && (e.state == Pending) == (e.next(p) == Pending) &&
		e.pod.NonPreemptible == p.NonPreemptible && e.pod.Amounts.Equal(p.Amounts) &&
		slices.Equal(e.pod.Claims, p.Claims)
}

// member returns what callers may see of the pod.
func (a *Account) member(e *entry) Member {
	return Member{e.pod, a.asks(e), e.state, e.group.quota, e.group.missing}
}

// turn changes a pending pod to one that holds its amounts, or back.
func (a *Account) turn(e *entry, to State) {
	if e.state = to; to == Pending {
		a.hold(e, (*Forest).Subtract)
	} else {
		a.hold(e, (*Forest).Add)
	}
	a.track(e)
	a.follow(e)
	a.use(e.pod.UID, nil, e.pod.Claims)
}

// count adds what a pod asks for and holds to its quota, or takes it back; hold what it holds alone.
func (a *Account) count(e *entry, to func(*Forest, *Quota, Measure, Vector)) {
	to(a.forest, e.group.quota, Request, e.vector)
	if e.pod.NonPreemptible {
		to(a.forest, e.group.quota, NonPreemptibleRequest, e.vector)
	}
	if e.state != Pending {
		a.hold(e, to)
	}
}

// hold applies to, which adds or subtracts, to what the pod uses. Use of a pod that must not be evicted is counted once
// more by itself.
func (a *Account) hold(e *entry, to func(*Forest, *Quota, Measure, Vector)) {
	to(a.forest, e.group.quota, Used, e.vector)
	if e.pod.NonPreemptible {
		to(a.forest, e.group.quota, NonPreemptibleUsed, e.vector)
	}
}

// leave takes a pod out of its group, and drops a group without pods.
func (a *Account) leave(e *entry) {
	g := e.group
	delete(g.pods, e.pod.UID)
	if len(g.pods) == 0 {
		delete(a.groups, g.key)
		a.unlist(g)
	}
	e.group = nil
}

// unlist takes a group from those of its quota.
func (a *Account) unlist(g *group) {
	rest := slices.DeleteFunc(a.groupsOf[g.quota], func(o *group) bool { return o == g })
	if a.groupsOf[g.quota] = rest; len(rest) == 0 {
		delete(a.groupsOf, g.quota)
	}
}

// unmap takes a quota out of the mapping, before its spec changes. It returns the namespaces that it took pods of.
func (a *Account) unmap(name string) []string {
	q := a.forest.Find(name)
	if q == nil || isReserved(name) {
		return nil
	}
	a.mapping.remove(&q.spec)
	return append([]string{q.spec.Namespace}, q.spec.Namespaces...)
}

// regroup moves the pods that may belong elsewhere now: those that name a quota or were bound in it, and those of
// namespaces. The work is in the number of groups.
func (a *Account) regroup(name string, namespaces ...[]string) {
	among := map[string]bool{}
	for _, namespace := range slices.Concat(namespaces...) {
		among[namespace] = true
	}
	for k, g := range a.groups {
		if k.Quota == name || k.Bound == name || k.Quota == "" && among[k.Namespace] {
			a.move(g)
		}
	}
}

// move takes the pods of a group to the quota that they belong to, requests and what they hold in one step.
func (a *Account) move(g *group) {
	q, missing := a.QuotaOf(g.key)
	g.missing = missing
	if q == g.quota {
		return
	}
	for _, e := range g.pods {
		a.count(e, (*Forest).Subtract)
	}
	a.unlist(g)
	g.quota = q
	a.groupsOf[q] = append(a.groupsOf[q], g)
	for _, e := range g.pods {
		a.count(e, (*Forest).Add)
	}
}
