package kubelet

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Guest is a bound pod as the node's kubelet sees it. It must not be changed.
type Guest struct {
	Pod *Pod
	// Created is when the pod was made, in seconds since the epoch: the order in which a kubelet admits a batch.
	Created int64
	// Prediction is what the scheduler expects the kubelet to give the pod; nil without one.
	Prediction *Prediction
}

// Prediction is a predicted placement.
type Prediction struct {
	// Model is the kubelet's release, Gen the report of the node that the prediction was made on.
	Model string
	Gen   int64
	// Held is in the order of the pod's containers.
	Held []Held
}

// CPUs is how many a static CPU manager gives the pod; 0 without a guest.
func (g *Guest) CPUs() int {
	if g == nil {
		return 0
	}
	return g.Pod.CPUs()
}

// Equal reports whether two guests are the same; each may be nil.
func (g *Guest) Equal(o *Guest) bool { return reflect.DeepEqual(g, o) }

// Tenant is a guest of one machine. It never changes.
type Tenant struct {
	UID, Namespace, Name string
	*Guest
	// Predicted is Guest.Prediction on the machine; nil without.
	Predicted Placement
}

// NewTenant translates what was predicted for a guest to m.
func NewTenant(m *topo.Machine, uid, namespace, name string, g *Guest) *Tenant {
	t := &Tenant{UID: uid, Namespace: namespace, Name: name, Guest: g}
	if g.Prediction != nil {
		t.Predicted = PlacementOf(m, g.Prediction.Held)
	}
	return t
}

// Source says from where a pod's placement is known.
type Source uint8

// Sources, the surest first.
const (
	// Reported: the node says so.
	Reported Source = iota
	// Pinned: the node reports the pod's CPUs, the rest is computed.
	Pinned
	// Predicted: the scheduler predicted it when it bound the pod, and the node has not reported the pod yet.
	Predicted
	// Computed: the pod has no prediction, or a later report contradicts the predictions.
	Computed
)

// String returns the source as a word.
func (s Source) String() string { return [...]string{"reported", "pinned", "predicted", "computed"}[s] }

// Assignment is what a pod has of the node's kubelet. It must not be changed.
type Assignment struct {
	*Tenant
	Source Source
	// Placement is what it has. For Pinned and Computed it follows from the state before it.
	Placement Placement
	// Refused: the kubelet, as it is predicted, would not have admitted it, so it has nothing.
	Refused bool
	// claim are CPUs of pods that the node does not name that are assigned to it; an assignment that has some is
	// Pinned.
	claim cpuset.Set
	// after is the state with it and all before it, for Pinned and Computed.
	after *State
}

// Difference is how what the node reported of the pod differs from what was predicted, as CompareOn of its machine
// reports it; 0 while one of them is missing. An init container that has ended does not count as a difference.
func (s *Assignment) Difference(m *topo.Machine) Difference {
	if s.Source != Reported || s.Predicted == nil {
		return 0
	}
	return CompareOn(m, lasting(s.Pod, s.Predicted, s.Placement), s.Placement)
}

// Report is what a node says of its kubelet: what does not depend on its pods.
type Report struct {
	*Facts // the same value as long as the report is
	// Given is sorted by UID. Nameless: some of it named no UID, so that what one pod has depends on which others there
	// are.
	Given    []Grant
	Nameless bool
	// Imported: another exporter's object, whose age is unknown, replaces the report of the node's agent.
	Imported bool
}

// Tenancy is what a node's kubelet has given to whom: what is reported counts, else what was predicted, else what the
// model says. It is immutable. nil is the tenancy of a node whose kubelet is not predicted: nothing is known of it.
//
//	reported ─With─► confirmed ─With predicted─► base ─Admit, one after the other─► the state
//
// confirmed and base do not depend on the order in which pods came; the rest follows the order of creation, as the
// kubelet's own admission does.
type Tenancy struct {
	Report
	confirmed, base *State
	// queue are the assignments that are admitted on base: Pinned before Computed, then by creation and UID.
	queue []*Assignment
	// assignments are all of them by UID.
	assignments []*Assignment
	// surprised: a report contradicts a prediction, so that predictions older than the report count for nothing.
	surprised bool
	// nameless are CPUs of pods that the node does not name when every pod has its own: those of pods that are gone, or
	// that the node's exporter saw before we did.
	nameless cpuset.Set
	// wide counts assignments with memory of several NUMA nodes at once. How that is split depends on the order in
	// which pods came: while there is one, everything is recomputed, in one order.
	wide int
}

// Settle computes who has what from a report of a kubelet that is predicted, and the node's pods, by UID.
func Settle(r Report, tenants []*Tenant) *Tenancy {
	empty := r.Node.Empty()
	t := &Tenancy{Report: r, confirmed: empty, base: empty}
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(g *Tenant) bool { return !r.concerns(g) })
	for _, g := range tenants {
		t.surprised = t.surprised || t.surprising(g)
	}
	for _, g := range tenants {
		t.enter(t.assignmentOf(g), 0)
	}
	t.share()
	t.admit(0)
	return t
}

// Change returns the tenancy after a pod has changed from was to is, nil where there is none; false where what others
// have may change too: then it is settled anew. One pod costs a With or a Without, and an admission for each unreported
// pod without a prediction that follows it.
func (t *Tenancy) Change(was, is *Tenant) (*Tenancy, bool) {
	left, entered := t.concerns(was), t.concerns(is)
	if !left && !entered {
		return t, true
	}
	if t.Nameless || left && t.isShared(was) || entered && t.isShared(is) {
		return nil, false
	}
	next := *t
	first := len(t.queue)
	if left {
		first = next.leave(was.UID, first)
	}
	if entered {
		first = next.enter(t.assignmentOf(is), first)
	}
	next.admit(first)
	return &next, t.wide == 0 && next.wide == 0
}

// isShared reports whether what others have follows from whether a pod is there: the node contradicts what was
// predicted for it, or has given CPUs to it that count all the same while it is not known.
func (t *Tenancy) isShared(g *Tenant) bool {
	return t.surprising(g) || !t.Predicts() && t.PinOf(g.UID) != cpuset.Set{}
}

func (r *Report) concerns(t *Tenant) bool { return t != nil && r.Facts.Gives(t.Pod) }

// Named returns grants with the UID of the pod of their namespace and name where they have none, by UID. Of two pods of
// one name the one with the lower UID has it: an exporter that reports no UID cannot distinguish them either.
func Named(given []Grant, tenants []*Tenant) []Grant {
	given = slices.Clone(given)
	for i := range given {
		if given[i].UID != "" || given[i].Name == "" {
			continue
		}
		if at := slices.IndexFunc(tenants, func(t *Tenant) bool {
			return t.Namespace == given[i].Namespace && t.Name == given[i].Name
		}); at >= 0 {
			given[i].UID = tenants[at].UID
		}
	}
	return Sorted(given)
}

// Kubelet returns the state with all that pods have; nil while the kubelet is not predicted.
func (t *Tenancy) Kubelet() *State {
	if t == nil {
		return nil
	}
	if n := len(t.queue); n > 0 {
		return t.queue[n-1].after
	}
	return t.base
}

// Confirmed returns the kubelet's state with nothing but what the node reported.
func (t *Tenancy) Confirmed() *State { return t.confirmed }

// Unconfirmed returns the pods of which the node has not said what they have, by UID; at most limit.
func (t *Tenancy) Unconfirmed(limit int) []*Pod {
	var pods []*Pod
	for _, s := range t.Assignments() {
		if s.Source >= Predicted && len(pods) < limit {
			pods = append(pods, s.Pod)
		}
	}
	return pods
}

// Assignments are those of all pods that take part, by UID; they must not be changed.
func (t *Tenancy) Assignments() []*Assignment {
	if t == nil {
		return nil
	}
	return t.assignments
}

// Assignment returns what a pod has; nil when it takes no part.
func (t *Tenancy) Assignment(uid string) *Assignment {
	if t == nil {
		return nil
	}
	if i, ok := t.find(uid); ok {
		return t.assignments[i]
	}
	return nil
}

// CPUs are those that the kubelet gave, or will give, to any pod.
func (t *Tenancy) CPUs() cpuset.Set {
	cpus := t.nameless
	for _, s := range t.assignments {
		own := s.Placement.CPUs()
		cpus.Include(&own)
	}
	return cpus
}

// Equal compares what every pod has and from where that is known: the states follow from it.
func (t *Tenancy) Equal(o *Tenancy) bool {
	if t == nil || o == nil {
		return t == o
	}
	return slices.EqualFunc(t.assignments, o.assignments, func(a, b *Assignment) bool {
		return a.UID == b.UID && a.Source == b.Source && a.Refused == b.Refused && a.Placement.Equal(b.Placement)
	}) && slices.EqualFunc(t.queue, o.queue, func(a, b *Assignment) bool { return a.UID == b.UID })
}

func (t *Tenancy) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(t.assignments, uid,
		func(s *Assignment, uid string) int { return cmp.Compare(s.UID, uid) })
}

// report returns what the node says of a pod, unless that is older than what was predicted for it, or was read while
// the kubelet was still giving the pod's containers their CPUs, one after the other.
func (t *Tenancy) report(of *Tenant) (Placement, bool) {
	if p := of.Prediction; p != nil && t.Gen <= p.Gen {
		return nil, false
	}
	for _, g := range grantsOf(t.Given, of.UID) {
		if g.Placement != nil {
			return g.Placement, t.isWhole(of.Pod, g.Placement)
		}
	}
	return nil, false
}

// isWhole reports whether every container that a static CPU manager gives CPUs has some in p. Init containers may have
// ended, and are not reported then.
func (t *Tenancy) isWhole(pod *Pod, p Placement) bool {
	if !pod.Guaranteed || pod.PodLevel || !t.Config.CPU.Static {
		return true
	}
	return !slices.ContainsFunc(pod.Containers, func(c Container) bool {
		g := p.find(c.Name)
		return c.CPUs > 0 && c.Role != Init && (g == nil || g.CPUs.IsEmpty())
	})
}

// surprising reports whether the node contradicts what was predicted for a pod.
func (t *Tenancy) surprising(g *Tenant) bool {
	if g.Predicted == nil {
		return false
	}
	actual, ok := t.report(g)
	return ok && Compare(lasting(g.Pod, g.Predicted, actual), actual) != 0
}

// lasting returns what was predicted without the init containers of which actual has nothing: they have ended, and the
// kubelet has taken back what they had.
func lasting(p *Pod, predicted, actual Placement) Placement {
	ended := func(g Given) bool { return p.roleOf(g.Container) == Init && actual.find(g.Container) == nil }
	return slices.DeleteFunc(slices.Clone(predicted), ended)
}

func (t *Tenancy) assignmentOf(g *Tenant) *Assignment {
	s := &Assignment{Tenant: g}
	actual, reported := t.report(g)
	pinned := t.PinOf(g.UID) != cpuset.Set{}
	switch p := g.Prediction; {
	case reported:
		s.Source, s.Placement = Reported, inOrder(g.Pod, actual)
	case pinned && (t.Imported || p == nil || !t.Predicts()):
		s.Source = Pinned
	case p != nil && (!t.surprised || p.Gen >= t.Gen):
		s.Source, s.Placement = Predicted, g.Predicted
	default:
		s.Source = Computed
	}
	return s
}

// inOrder puts what containers have in the order of the pod's containers; what no container of it has comes last.
func inOrder(p *Pod, placement Placement) Placement {
	at := func(g Given) int {
		if i := p.index(g.Container); i >= 0 {
			return i
		}
		return len(p.Containers)
	}
	order := func(a, b Given) int { return cmp.Compare(at(a), at(b)) }
	placement = slices.Clone(placement)
	slices.SortStableFunc(placement, order)
	return placement
}

// PinOf returns the CPUs that the node says the kubelet pinned for a pod.
func (t *Tenancy) PinOf(uid string) cpuset.Set {
	var cpus cpuset.Set
	for _, g := range grantsOf(t.Given, uid) {
		cpus.Include(&g.CPUs)
	}
	return cpus
}

// leave and enter change a tenancy by one assignment; slices and states are replaced, never written to. They return the
// place in the queue from which on it must be admitted again: first, or one before it.
func (t *Tenancy) leave(uid string, first int) int {
	i, ok := t.find(uid)
	if !ok {
		return first
	}
	s := t.assignments[i]
	t.assignments = slices.Delete(slices.Clone(t.assignments), i, i+1)
	t.wide -= s.wide()
	switch s.Source {
	case Reported:
		t.confirmed = t.confirmed.Without(uid)
		fallthrough
	case Predicted:
		t.base = t.base.Without(uid)
		return 0
	}
	at := slices.Index(t.queue, s)
	t.queue = slices.Delete(slices.Clone(t.queue), at, at+1)
	return min(first, at)
}

func (t *Tenancy) enter(s *Assignment, first int) int {
	i, _ := t.find(s.UID)
	t.assignments = slices.Insert(slices.Clip(t.assignments), i, s)
	t.wide += s.wide()
	switch s.Source {
	case Reported:
		t.confirmed = t.confirmed.With(s.Pod, s.Placement)
		fallthrough
	case Predicted:
		t.base = t.base.With(s.Pod, s.Placement)
		return 0
	}
	at, _ := slices.BinarySearchFunc(t.queue, s, byAdmission)
	t.queue = slices.Insert(slices.Clip(t.queue), at, s)
	return min(first, at)
}

// byAdmission is the order in which a kubelet admits pods that come together; those that it has pinned came before.
func byAdmission(a, b *Assignment) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Created, b.Created), cmp.Compare(a.UID, b.UID))
}

// namelessUID is the holder of CPUs of no known pod. No UID of a pod has a slash.
const namelessUID = "unclaimed/"

// share assigns the CPUs that the kubelet has allocated to unknown pods to the pods of which nothing else is known, in
// the order of admission. Which of them has which CPUs does not matter: what is free does. Where CPUs are counted,
// those of reported pods that are not known count too.
func (t *Tenancy) share() {
	left := Unclaimed(t.Given).Intersect(t.Node.machine.Online())
	for _, s := range t.assignments {
		if s.Source == Pinned {
			left = left.Minus(t.PinOf(s.UID))
		} else {
			left = left.Minus(s.Placement.CPUs())
		}
	}
	for _, s := range t.queue {
		if n := t.Node.cpus.podRequest(s.Pod); s.Source == Computed && n > 0 && n <= left.Len() {
			s.claim, s.Source = lowest(&left, n), Pinned
			left = left.Minus(s.claim)
		}
	}
	slices.SortFunc(t.queue, byAdmission)
	t.nameless = left
	for _, g := range t.Given {
		if _, known := t.find(g.UID); !known && g.UID+g.Name != "" && !t.Predicts() {
			left.Include(&g.CPUs)
		}
	}
	if !left.IsEmpty() {
		t.base = t.base.With(&Pod{UID: namelessUID, Guaranteed: true}, Placement{{CPUs: left}})
	}
}

// Unclaimed are the CPUs that grants give to pods that the node does not name.
func Unclaimed(given []Grant) cpuset.Set {
	var cpus cpuset.Set
	for _, g := range given {
		if g.UID == "" && g.Name == "" {
			cpus.Include(&g.CPUs)
		}
	}
	return cpus
}

func lowest(set *cpuset.Set, n int) cpuset.Set {
	var first cpuset.Set
	for c := range set.All() {
		if first.Len() >= n {
			break
		}
		first.Add(c)
	}
	return first
}

func (t *Tenancy) admit(first int) {
	if first >= len(t.queue) {
		return
	}
	state := t.base
	if first > 0 {
		state = t.queue[first-1].after
	}
	t.queue = slices.Clone(t.queue)
	t.assignments = slices.Clone(t.assignments)
	for i, s := range t.queue[first:] {
		again := *s
		state = again.admit(state, t)
		t.wide += again.wide() - s.wide()
		t.queue[first+i] = &again
		at, _ := t.find(again.UID)
		t.assignments[at] = &again
	}
}

// wide is 1 when some of its memory is of several NUMA nodes at once, else 0.
func (s *Assignment) wide() int {
	if slices.ContainsFunc(s.Placement, func(g Given) bool {
		return slices.ContainsFunc(g.Memory, func(b Block) bool { return b.Nodes.Len() > 1 })
	}) {
		return 1
	}
	return 0
}

func (s *Assignment) admit(state *State, t *Tenancy) *State {
	after, placement, refusal := state.Admit(s.Pod)
	s.Refused = refusal != nil
	if s.Refused {
		after, placement = state, nil
	}
	if s.Source == Pinned {
		if cpus := t.PinOf(s.UID).Union(s.claim).Intersect(t.Node.machine.Online()); placement.CPUs() != cpus {
			placement = pinned(s.Pod, placement, cpus)
			after, s.Refused = state.With(s.Pod, placement), false
		}
	}
	s.Placement, s.after = placement, after
	return after
}

// pinned is a placement with other CPUs. The report does not say which container has which; the account needs the sum
// alone.
func pinned(p *Pod, placement Placement, cpus cpuset.Set) Placement {
	placement = slices.Clone(placement)
	for i := range placement {
		placement[i].CPUs = cpuset.Set{}
	}
	name := ""
	if i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.CPUs > 0 && c.Role != Init }); i >= 0 {
		name = p.Containers[i].Name
	}
	if g := placement.find(name); g != nil {
		g.CPUs = cpus
		return placement
	}
	return append(placement, Given{Container: name, CPUs: cpus})
}

// Confirmation is a predicted placement of which the node has reported the actual one.
type Confirmation struct {
	*Tenant
	Actual []Held
	// Difference is 0 when the prediction was right.
	Difference Difference
	// Surprise: it was wrong, and had not said that it might be.
	Surprise bool
}

// Confirmations returns what t knows of predictions that before did not: the pods that the node has reported since, by
// UID.
func (t *Tenancy) Confirmations(before *Tenancy) []Confirmation {
	if t == nil || before != nil && t.Facts == before.Facts {
		return nil
	}
	var out []Confirmation
	for _, s := range t.assignments {
		was := before.Assignment(s.UID)
		if s.Source != Reported || s.Predicted == nil || was != nil && was.Source == Reported {
			continue
		}
		m := t.Node.machine
		c := Confirmation{Tenant: s.Tenant, Actual: HeldOf(m, s.Placement), Difference: s.Difference(m)}
		c.Surprise = c.Difference != 0 && s.Prediction.isCertain()
		out = append(out, c)
	}
	return out
}
