package ledger

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Mode says whose CPU assignments hold on a node.
type Mode uint8

// Modes.
const (
	// Own: the scheduler chooses, the agent enforces.
	Own Mode = iota
	// Follow: the kubelet chooses, the scheduler predicts what.
	Follow
	// Blind: the kubelet is not modelled; nothing is known of it.
	Blind
)

// String returns the annotation's spelling.
func (m Mode) String() string { return [...]string{"Own", "Follow", "Blind"}[m] }

// Model is a node's kubelet as far as its answers can be predicted. The zero value predicts nothing, and costs nothing.
type Model struct {
	// Node is the kubelet before it has allocated anything; nil while all its managers are off, its version has no
	// model, or the machine is not known. Equal facts share one.
	Node *kubelet.Node
	// Fault says, while Node is nil, why the kubelet can run no pod that takes part.
	Fault why.Reason
	// CPUs and Memory are true when those managers are static. Devices are the resources that the device manager
	// knows, sorted.
	CPUs, Memory bool
	Devices      []string
	// Policy is the kubelet's topology policy, PodScope whether it merges once for a pod.
	Policy   TopologyPolicy
	PodScope bool
	// Release is the kubelet's minor version: 1.36.
	Release string
	// Assumed is what predictions of this kubelet take for granted, a phrase each: a release, an option or a feature
	// gate that the model does not know, settings that only another project's exporter reports. None: the model knows
	// it.
	Assumed []string
	// Trust is what an assumed kubelet is good for in mode Follow; Trusted for all others.
	Trust Trust
	// Gen is the generation of the node's report, 0 = there is none; Placed what it says that pods have.
	Gen    int64
	Placed []Placed
}

// Trust is what pods meet whose CPUs a kubelet chooses.
type Trust uint8

// Degrees of trust.
const (
	// Trusted: its predictions count as any other's.
	Trusted Trust = iota
	// Doubted: its node ranks behind others.
	Doubted
	// Distrusted: it gets no such pods.
	Distrusted
)

// Placed is what the node reports of one pod.
type Placed struct {
	UID  string
	Held []Held
}

// Concerns reports whether the kubelet gives p anything of its own, or would have to.
func (m *Model) Concerns(p *kubelet.Pod) bool {
	if p == nil || m.Node == nil && m.Fault.OK() {
		return false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if p.Guaranteed && (m.CPUs && c.CPUs > 0 || m.Memory && len(c.Memory) > 0) {
			return true
		}
		for _, d := range c.Devices {
			if _, known := slices.BinarySearch(m.Devices, d.Name); known {
				return true
			}
		}
	}
	return false
}

func (m *Model) equal(o *Model) bool {
	return sameKubelet(m.Node, o.Node) && m.Fault == o.Fault && m.CPUs == o.CPUs && m.Memory == o.Memory &&
		slices.Equal(m.Devices, o.Devices) &&
		m.Policy == o.Policy && m.PodScope == o.PodScope && m.Release == o.Release &&
		slices.Equal(m.Assumed, o.Assumed) && m.Trust == o.Trust && m.Gen == o.Gen &&
		slices.EqualFunc(sortedPlaced(m.Placed), sortedPlaced(o.Placed), func(a, b Placed) bool {
			return a.UID == b.UID && slices.EqualFunc(a.Held, b.Held, Held.Equal)
		})
}

func sameKubelet(a, b *kubelet.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

func sortedPlaced(placed []Placed) []Placed {
	byUID := func(a, b Placed) int { return cmp.Compare(a.UID, b.UID) }
	if !slices.IsSortedFunc(placed, byUID) {
		placed = slices.Clone(placed)
		slices.SortStableFunc(placed, byUID)
	}
	return placed
}

// Guest is the pod of an entry as the node's kubelet sees it. It must not be changed.
type Guest struct {
	Pod *kubelet.Pod
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

// Equal reports whether two guests are the same.
func (g *Guest) Equal(o *Guest) bool {
	if g == nil || o == nil {
		return g == o
	}
	if g.Created != o.Created || !samePod(g.Pod, o.Pod) {
		return false
	}
	p, q := g.Prediction, o.Prediction
	if p == nil || q == nil {
		return p == q
	}
	return p.Model == q.Model && p.Gen == q.Gen && slices.EqualFunc(p.Held, q.Held, Held.Equal)
}

func samePod(a, b *kubelet.Pod) bool {
	return a == b || a != nil && b != nil && a.UID == b.UID && a.Guaranteed == b.Guaranteed &&
		a.PodLevel == b.PodLevel &&
		slices.EqualFunc(a.Containers, b.Containers, func(c, d kubelet.Container) bool {
			return c.Name == d.Name && c.Role == d.Role && c.CPUs == d.CPUs &&
				slices.Equal(c.Memory, d.Memory) && slices.Equal(c.Devices, d.Devices)
		})
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

// assignment is a pod on a node whose kubelet is predicted.
type assignment struct {
	*account
	source Source
	// placement is what it has. For Pinned and Computed it follows from the state before it.
	placement kubelet.Placement
	// claim are CPUs of Facts.Unclaimed that are assigned to it; an assignment that has some is Pinned.
	claim cpuset.Set
	// refused: the kubelet as it is predicted would not admit it, so it has nothing.
	refused bool
	// after is the state with it and all before it, for Pinned and Computed.
	after *kubelet.State
}

// tenancy is what a node's kubelet has given to whom.
//
//	reported ─With─► confirmed ─With predicted─► base ─Admit, one after the other─► the state
//
// confirmed and base do not depend on the order in which pods came; the rest follows the order of creation, as the
// kubelet's own admission does.
type tenancy struct {
	confirmed, base *kubelet.State
	// queue are the assignments that are admitted on base: Pinned before Computed, then by creation and UID.
	queue []*assignment
	// assignments are all of them by UID.
	assignments []*assignment
	// surprised: a report contradicts a prediction, so that predictions older than the report count for nothing.
	surprised bool
	// nameless is what remains of Facts.Unclaimed when every pod has its own: CPUs of pods that are gone, or that the
	// node's exporter saw before we did.
	nameless cpuset.Set
	// wide counts assignments with memory of several NUMA nodes at once. How that is split depends on the order in
	// which pods came: while there is one, everything is recomputed, in one order.
	wide int
}

// Kubelet returns what the node's kubelet has given to whom: what is reported counts, else what was predicted, else
// what the model says. nil while the kubelet is not predicted.
func (v *View) Kubelet() *kubelet.State {
	if v.tenancy == nil {
		return nil
	}
	return v.tenancy.state()
}

// Confirmed returns the kubelet's state with nothing but what the node reported; nil while it is not predicted.
func (v *View) Confirmed() *kubelet.State {
	if v.tenancy == nil {
		return nil
	}
	return v.tenancy.confirmed
}

// Unconfirmed returns the pods that take part and of which the node has not said what they have, by UID; at most limit.
func (v *View) Unconfirmed(limit int) []*kubelet.Pod {
	if v.tenancy == nil {
		return nil
	}
	var pods []*kubelet.Pod
	for _, s := range v.tenancy.assignments {
		if s.source >= Predicted && len(pods) < limit {
			pods = append(pods, s.Guest.Pod)
		}
	}
	return pods
}

// Assignment is what a pod has of the node's kubelet.
type Assignment struct {
	Entry     Entry
	Source    Source
	Placement kubelet.Placement
	// Predicted is what the scheduler predicted when it bound the pod; nil without.
	Predicted kubelet.Placement
	// Refused: the kubelet, as it is predicted, would not have admitted it.
	Refused bool
}

// Difference is how what the node reported of the pod differs from what was predicted, as CompareOn of its machine
// reports it; 0 while one of them is missing. An init container that has ended does not count as a difference.
func (s *Assignment) Difference(m *topo.Machine) Difference {
	if s.Source != Reported || s.Predicted == nil {
		return 0
	}
	return CompareOn(m, lasting(s.Entry.Guest.Pod, s.Predicted, s.Placement), s.Placement)
}

func (s *assignment) snapshot() Assignment {
	return Assignment{s.Entry, s.source, s.placement, s.predicted, s.refused}
}

// Assignment returns what the pod has of the node's kubelet; false when it takes no part.
func (v *View) Assignment(uid string) (Assignment, bool) {
	if v.tenancy == nil {
		return Assignment{}, false
	}
	i, ok := v.tenancy.find(uid)
	if !ok {
		return Assignment{}, false
	}
	return v.tenancy.assignments[i].snapshot(), true
}

// Assignments yields all pods that take part, by UID.
func (v *View) Assignments() iter.Seq[Assignment] {
	return func(yield func(Assignment) bool) {
		if v.tenancy == nil {
			return
		}
		for _, s := range v.tenancy.assignments {
			if !yield(s.snapshot()) {
				return
			}
		}
	}
}

// Confirmation is a predicted placement of which the node has reported the actual one.
type Confirmation struct {
	Entry  Entry
	Actual []Held
	// Difference is 0 when the prediction was right.
	Difference Difference
}

// Confirmations returns what v knows of predictions that before did not: the pods that the node has reported since, by
// UID.
func (v *View) Confirmations(before *View) []Confirmation {
	if v.tenancy == nil || v.frame == before.frame {
		return nil
	}
	var out []Confirmation
	for _, s := range v.tenancy.assignments {
		if s.source != Reported || s.predicted == nil {
			continue
		}
		if was, ok := before.Assignment(s.UID); ok && was.Source == Reported {
			continue
		}
		is := s.snapshot()
		out = append(out, Confirmation{
			Entry: s.Entry, Actual: HeldOf(v.facts.Machine, s.placement), Difference: is.Difference(v.facts.Machine),
		})
	}
	return out
}

func (t *tenancy) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(t.assignments, uid,
		func(s *assignment, uid string) int { return cmp.Compare(s.UID, uid) })
}

func (t *tenancy) state() *kubelet.State {
	if n := len(t.queue); n > 0 {
		return t.queue[n-1].after
	}
	return t.base
}

// settle computes the tenancy of v: from that of before, which differs by one account and shares the frame, or anew.
// One pod costs a With or a Without, and an admission for each unreported pod without a prediction that follows
// it.
func (v *View) settle(before *View, was, is *account) {
	model := &v.facts.Model
	if model.Node == nil || v.facts.Machine == nil {
		return
	}
	if before == nil || before.tenancy == nil {
		v.tenancy = v.settleAll()
		return
	}
	was, is = v.guest(was), v.guest(is)
	if was == nil && is == nil {
		v.tenancy = before.tenancy
		return
	}
	if v.surprising(was) || v.surprising(is) || v.dependsOnOthers() { // what others have may change too
		v.tenancy = v.settleAll()
		return
	}
	t := *before.tenancy
	first := len(t.queue)
	if was != nil {
		first = t.leave(was.UID, first)
	}
	if is != nil {
		first = t.enter(v.assignmentOf(is, t.surprised), first)
	}
	t.admit(v, first)
	if before.tenancy.wide > 0 || t.wide > 0 {
		v.tenancy = v.settleAll()
		return
	}
	v.tenancy = &t
}

func (v *View) settleAll() *tenancy {
	empty := v.facts.Model.Node.Empty()
	t := &tenancy{confirmed: empty, base: empty}
	for _, a := range v.accounts {
		t.surprised = t.surprised || v.surprising(v.guest(a))
	}
	for _, a := range v.accounts {
		if v.guest(a) != nil {
			t.enter(v.assignmentOf(a, t.surprised), 0)
		}
	}
	t.share(v)
	t.admit(v, 0)
	return t
}

// guest returns a when it takes part in the kubelet's decisions.
func (v *View) guest(a *account) *account {
	if a == nil || a.Guest == nil || !v.facts.Model.Concerns(a.Guest.Pod) {
		return nil
	}
	return a
}

// report returns what the node says of a pod, unless that is older than what was predicted for it, or was read while
// the kubelet was still giving the pod's containers their CPUs, one after the other.
func (v *View) report(a *account) (kubelet.Placement, bool) {
	m := &v.facts.Model
	if p := a.Guest.Prediction; p != nil && m.Gen <= p.Gen {
		return nil, false
	}
	i, ok := slices.BinarySearchFunc(m.Placed, a.UID, func(p Placed, uid string) int { return cmp.Compare(p.UID, uid) })
	if !ok || !v.isWhole(a.Guest.Pod, v.placed[i]) {
		return nil, false
	}
	return v.placed[i], true
}

// isWhole reports whether every container that a static CPU manager gives CPUs has some in p. Init containers may have
// ended, and are not reported then.
func (v *View) isWhole(pod *kubelet.Pod, p kubelet.Placement) bool {
	if !pod.Guaranteed || pod.PodLevel || !v.facts.Model.CPUs {
		return true
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.CPUs > 0 && c.Role != kubelet.Init && !slices.ContainsFunc(p, func(g kubelet.Given) bool {
			return g.Container == c.Name && !g.CPUs.IsEmpty()
		}) {
			return false
		}
	}
	return true
}

// surprising reports whether the node contradicts what was predicted for a.
func (v *View) surprising(a *account) bool {
	if a == nil || a.predicted == nil {
		return false
	}
	actual, ok := v.report(a)
	return ok && Compare(lasting(a.Guest.Pod, a.predicted, actual), actual) != 0
}

// lasting returns what was predicted without the init containers of which actual has nothing: they have ended, and the
// kubelet has taken back what they had.
func lasting(p *kubelet.Pod, predicted, actual kubelet.Placement) kubelet.Placement {
	ended := func(g kubelet.Given) bool {
		is := func(name string) func(kubelet.Container) bool {
			return func(c kubelet.Container) bool { return c.Name == name && c.Role == kubelet.Init }
		}
		return slices.ContainsFunc(p.Containers, is(g.Container)) &&
			!slices.ContainsFunc(actual, func(a kubelet.Given) bool { return a.Container == g.Container })
	}
	if !slices.ContainsFunc(predicted, ended) {
		return predicted
	}
	return slices.DeleteFunc(slices.Clone(predicted), ended)
}

func (v *View) assignmentOf(a *account, surprised bool) *assignment {
	s := &assignment{account: a}
	actual, reported := v.report(a)
	switch p := a.Guest.Prediction; {
	case reported:
		s.source, s.placement = Reported, inOrder(a.Guest.Pod, actual)
	case v.facts.Imported && v.pinOf(a.UID) != cpuset.Set{}:
		s.source = Pinned
	case p != nil && (!surprised || p.Gen >= v.facts.Model.Gen):
		s.source, s.placement = Predicted, a.predicted
	case p == nil && v.pinOf(a.UID) != cpuset.Set{}:
		s.source = Pinned
	default:
		s.source = Computed
	}
	return s
}

// inOrder puts what containers have in the order of the pod's containers; what no container of it has comes last.
func inOrder(p *kubelet.Pod, placement kubelet.Placement) kubelet.Placement {
	at := func(g kubelet.Given) int {
		i := slices.IndexFunc(p.Containers, func(c kubelet.Container) bool { return c.Name == g.Container })
		if i < 0 {
			return len(p.Containers)
		}
		return i
	}
	order := func(a, b kubelet.Given) int { return cmp.Compare(at(a), at(b)) }
	if slices.IsSortedFunc(placement, order) {
		return placement
	}
	placement = slices.Clone(placement)
	slices.SortStableFunc(placement, order)
	return placement
}

// pinOf returns the CPUs that the node says the kubelet pinned for a pod.
func (v *View) pinOf(uid string) cpuset.Set {
	var cpus cpuset.Set
	pins := v.pins
	i, _ := slices.BinarySearchFunc(pins, uid, func(p Pin, uid string) int { return cmp.Compare(p.UID, uid) })
	for ; i < len(pins) && pins[i].UID == uid; i++ {
		cpus.Include(&pins[i].CPUs)
	}
	return cpus
}

// leave and enter change a tenancy by one assignment; slices and states are replaced, never written to. They return the
// place in the queue from which on it must be admitted again: first, or one before it.
func (t *tenancy) leave(uid string, first int) int {
	i, ok := t.find(uid)
	if !ok {
		return first
	}
	s := t.assignments[i]
	t.assignments = slices.Delete(slices.Clone(t.assignments), i, i+1)
	t.wide -= s.wide()
	switch s.source {
	case Reported:
		t.confirmed = t.confirmed.Without(uid)
		t.base = t.base.Without(uid)
		return 0
	case Predicted:
		t.base = t.base.Without(uid)
		return 0
	}
	at := slices.Index(t.queue, s)
	t.queue = slices.Delete(slices.Clone(t.queue), at, at+1)
	return min(first, at)
}

func (t *tenancy) enter(s *assignment, first int) int {
	i, _ := t.find(s.UID)
	t.assignments = inserted(t.assignments, i, s)
	t.wide += s.wide()
	switch s.source {
	case Reported:
		t.confirmed = t.confirmed.With(s.Guest.Pod, s.placement)
		t.base = t.base.With(s.Guest.Pod, s.placement)
		return 0
	case Predicted:
		t.base = t.base.With(s.Guest.Pod, s.placement)
		return 0
	}
	at, _ := slices.BinarySearchFunc(t.queue, s, byAdmission)
	t.queue = inserted(t.queue, at, s)
	return min(first, at)
}

// inserted is a copy of list with s at i.
func inserted(list []*assignment, i int, s *assignment) []*assignment {
	next := append(make([]*assignment, 0, len(list)+1), list[:i]...)
	return append(append(next, s), list[i:]...)
}

// byAdmission is the order in which a kubelet admits pods that come together; those that it has pinned came before.
func byAdmission(a, b *assignment) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.Guest.Created, b.Guest.Created),
		cmp.Compare(a.UID, b.UID))
}

// admit runs the model for the queue from first on.
func (t *tenancy) admit(v *View, first int) {
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
		state = again.admit(state, v)
		t.wide += again.wide() - s.wide()
		t.queue[first+i] = &again
		at, _ := t.find(again.UID)
		t.assignments[at] = &again
	}
}

// wide is 1 when some of its memory is of several NUMA nodes at once, else 0.
func (s *assignment) wide() int {
	for i := range s.placement {
		for _, b := range s.placement[i].Memory {
			if b.Nodes.Len() > 1 {
				return 1
			}
		}
	}
	return 0
}

func (s *assignment) admit(state *kubelet.State, v *View) *kubelet.State {
	after, placement, refusal := state.Admit(s.Guest.Pod)
	s.refused = refusal != nil
	if s.refused {
		after, placement = state, nil
	}
	if s.source == Pinned {
		if cpus := v.pinOf(s.UID).Union(s.claim).Intersect(v.facts.Machine.Online()); held(placement) != cpus {
			placement = pinned(s.Guest.Pod, placement, cpus)
			after, s.refused = state.With(s.Guest.Pod, placement), false
		}
	}
	s.placement, s.after = placement, after
	return after
}

// pinned is a placement with other CPUs. The report does not say which container has which; the account needs the sum
// alone.
func pinned(p *kubelet.Pod, placement kubelet.Placement, cpus cpuset.Set) kubelet.Placement {
	placement = slices.Clone(placement)
	for i := range placement {
		placement[i].CPUs = cpuset.Set{}
	}
	name := ""
	for _, c := range p.Containers {
		if c.CPUs > 0 && c.Role != kubelet.Init {
			name = c.Name
			break
		}
	}
	for i := range placement {
		if placement[i].Container == name {
			placement[i].CPUs = cpus
			return placement
		}
	}
	return append(placement, kubelet.Given{Container: name, CPUs: cpus})
}

// held returns all CPUs of a placement.
func held(p kubelet.Placement) cpuset.Set {
	var cpus cpuset.Set
	for i := range p {
		cpus.Include(&p[i].CPUs)
	}
	return cpus
}

// cpus returns the CPUs that the kubelet gave, or will give, to any pod.
func (t *tenancy) cpus() cpuset.Set {
	cpus := t.nameless
	for _, s := range t.assignments {
		for i := range s.placement {
			cpus.Include(&s.placement[i].CPUs)
		}
	}
	return cpus
}

// equal compares what every pod has and from where that is known: the states follow from it.
func (t *tenancy) equal(o *tenancy) bool {
	if t == nil || o == nil {
		return t == o
	}
	return slices.EqualFunc(t.assignments, o.assignments, func(a, b *assignment) bool {
		return a.UID == b.UID && a.source == b.source && a.refused == b.refused &&
			slices.EqualFunc(a.placement, b.placement, sameGiven)
	}) && slices.EqualFunc(t.queue, o.queue, func(a, b *assignment) bool { return a.UID == b.UID })
}

func sameGiven(a, b kubelet.Given) bool {
	return a.Container == b.Container && a.Hint == b.Hint && a.CPUs == b.CPUs && slices.Equal(a.Memory, b.Memory) &&
		slices.Equal(a.Devices, b.Devices)
}

// placementsOf translates the report.
func placementsOf(m *topo.Machine, placed []Placed) []kubelet.Placement {
	out := make([]kubelet.Placement, len(placed))
	for i := range placed {
		out[i] = placementOf(m, placed[i].Held)
	}
	return out
}
