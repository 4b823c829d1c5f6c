package tenancy

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// State is what each pod on a node has of the node's kubelet. It is immutable. A nil State is that of a node whose
// kubelet is not predicted: nothing is known of what its pods have.
type State struct {
	Report
	// confirmed is the kubelet's state with the Reported pods, base that with the Reported and Predicted ones. Neither
	// depends on the order of the pods.
	confirmed, base *kubelet.State
	// queue are the Pinned and Computed assignments, in the order byAdmission in which they are admitted on base.
	// Invariant: queue[i].after is the state with base and queue[:i+1].
	queue []*Assignment
	// assignments are the assignments of all pods, by UID.
	assignments []*Assignment
	// contradicted is true if the report contradicts a prediction. Predictions that are older than the report then
	// count for nothing.
	contradicted bool
	// unattributed are the CPUs of pods that the report does not identify which no known pod can have: those of pods
	// that have gone, or that the node's exporter saw before the scheduler did.
	unattributed cpuset.Set
	// spanning counts assignments with memory of several NUMA nodes at once. How the kubelet splits such memory depends
	// on the order in which pods came, so while there is one, Change declines and everything is computed in one order.
	spanning int
}

// New computes the state from the report of a kubelet that is predicted, and the tenants, which are sorted by UID.
func New(r Report, tenants []*Tenant) *State {
	empty := r.Node.Empty()
	s := &State{Report: r, confirmed: empty, base: empty}
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(t *Tenant) bool { return !r.concerns(t) })
	s.contradicted = slices.ContainsFunc(tenants, r.contradicts)
	for _, t := range tenants {
		s.add(s.newAssignment(t), 0)
	}
	s.attributeCPUs()
	s.attributeDevices()
	s.admitFrom(0)
	return s
}

// Change returns the state after a pod has changed from before to after; before is nil for a new pod, after for a
// deleted one. It returns false if what other pods have may change too: call New then.
func (s *State) Change(before, after *Tenant) (*State, bool) {
	leaves, enters := s.concerns(before), s.concerns(after)
	if !leaves && !enters {
		return s, true
	}
	if s.Unattributed || leaves && s.affectsOthers(before) || enters && s.affectsOthers(after) {
		return nil, false
	}
	next := *s
	first := len(s.queue)
	if leaves {
		first = next.remove(before.UID, first)
	}
	if enters {
		first = next.add(next.newAssignment(after), first)
	}
	next.admitFrom(first)
	return &next, s.spanning == 0 && next.spanning == 0
}

// affectsOthers reports whether the placements of other pods depend on whether the node has this pod: the report
// contradicts its prediction, or counts CPUs for it even while the pod is unknown.
func (s *State) affectsOthers(t *Tenant) bool {
	return s.contradicts(t) || !s.Predicts() && s.PinOf(t.UID) != cpuset.Set{}
}

// Kubelet returns the kubelet's state with all that pods have; nil for a nil State.
func (s *State) Kubelet() *kubelet.State {
	if s == nil {
		return nil
	}
	if n := len(s.queue); n > 0 {
		return s.queue[n-1].after
	}
	return s.base
}

// Confirmed returns the kubelet's state with the Reported pods alone.
func (s *State) Confirmed() *kubelet.State { return s.confirmed }

// Unconfirmed returns the pods of which the node has reported nothing, by UID; at most limit.
func (s *State) Unconfirmed(limit int) []*kubelet.Pod {
	var pods []*kubelet.Pod
	for _, a := range s.Assignments() {
		if a.Source >= Predicted && len(pods) < limit {
			pods = append(pods, a.Pod)
		}
	}
	return pods
}

// Assignments returns the assignments of all pods that take part, by UID. They must not be changed.
func (s *State) Assignments() []*Assignment {
	if s == nil {
		return nil
	}
	return s.assignments
}

// Assignment returns what a pod has; nil if the pod takes no part.
func (s *State) Assignment(uid string) *Assignment {
	if s == nil {
		return nil
	}
	if i, ok := s.find(uid); ok {
		return s.assignments[i]
	}
	return nil
}

// CPUs returns the CPUs that the kubelet gave, or will give, to any pod.
func (s *State) CPUs() cpuset.Set {
	cpus := s.unattributed
	for _, a := range s.assignments {
		own := a.Placement.CPUs()
		cpus.Include(&own)
	}
	return cpus
}

// Equal compares what every pod has and how that is known; the kubelet's states follow from it.
func (s *State) Equal(o *State) bool {
	if s == nil || o == nil {
		return s == o
	}
	return slices.EqualFunc(s.assignments, o.assignments, func(a, b *Assignment) bool {
		return a.UID == b.UID && a.Source == b.Source && a.Refused == b.Refused && a.Placement.Equal(b.Placement)
	}) && slices.EqualFunc(s.queue, o.queue, func(a, b *Assignment) bool { return a.UID == b.UID })
}

// find returns the position of a pod, or the one where it would be inserted and false.
func (s *State) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(s.assignments, uid,
		func(a *Assignment, uid string) int { return cmp.Compare(a.UID, uid) })
}

// add and remove change s by one assignment. They replace slices and states, and never write to them. They return the
// lower of first and the position in the queue from which on pods must be admitted again.
func (s *State) add(a *Assignment, first int) int {
	i, _ := s.find(a.UID)
	s.assignments = slices.Insert(slices.Clip(s.assignments), i, a)
	s.spanning += a.spansNodes()
	switch a.Source {
	case Reported:
		s.confirmed = s.confirmed.With(a.Pod, a.Placement)
		fallthrough
	case Predicted:
		s.base = s.base.With(a.Pod, a.Placement)
		return 0
	}
	at, _ := slices.BinarySearchFunc(s.queue, a, byAdmission)
	s.queue = slices.Insert(slices.Clip(s.queue), at, a)
	return min(first, at)
}

// remove takes a pod out. It returns the first position of the queue from which pods must be admitted again: first, or
// an earlier one.
func (s *State) remove(uid string, first int) int {
	i, ok := s.find(uid)
	if !ok {
		return first
	}
	a := s.assignments[i]
	s.assignments = slices.Delete(slices.Clone(s.assignments), i, i+1)
	s.spanning -= a.spansNodes()
	switch a.Source {
	case Reported:
		s.confirmed = s.confirmed.Without(uid)
		fallthrough
	case Predicted:
		s.base = s.base.Without(uid)
		return 0
	}
	at := slices.Index(s.queue, a)
	s.queue = slices.Delete(slices.Clone(s.queue), at, at+1)
	return min(first, at)
}

// admitFrom admits the pods of the queue again, from position first on.
func (s *State) admitFrom(first int) {
	if first >= len(s.queue) {
		return
	}
	state := s.base
	if first > 0 {
		state = s.queue[first-1].after
	}
	s.queue = slices.Clone(s.queue)
	s.assignments = slices.Clone(s.assignments)
	for i, old := range s.queue[first:] {
		a := *old
		state = a.admit(state, s)
		s.spanning += a.spansNodes() - old.spansNodes()
		s.queue[first+i] = &a
		at, _ := s.find(a.UID)
		s.assignments[at] = &a
	}
}

// unattributedUID is the holder of unattributed CPUs in the kubelet's state. No UID of a pod has a slash.
const unattributedUID = "unattributed/"

// attributeCPUs assigns the CPUs that the report gives to pods that it does not identify to the Computed pods, in the
// order of admission, the lowest CPUs first. Which of these pods has which CPUs does not matter, because only the free
// CPUs do. CPUs that remain are held under unattributedUID. If the kubelet's CPUs are only counted, the reported CPUs
// of unknown pods are held too.
func (s *State) attributeCPUs() {
	left := UnattributedCPUs(s.Given).Intersect(s.Node.Machine().Online())
	for _, a := range s.assignments {
		if a.Source == Pinned {
			left = left.Minus(s.PinOf(a.UID))
		} else {
			left = left.Minus(a.Placement.CPUs())
		}
	}
	for _, a := range s.queue {
		if n := s.Node.CPURequest(a.Pod); a.Source == Computed && n > 0 && n <= left.Len() {
			a.claim, a.Source = lowest(&left, n), Pinned
			left = left.Minus(a.claim)
		}
	}
	slices.SortFunc(s.queue, byAdmission)
	s.unattributed = left
	for _, g := range s.Given {
		if _, known := s.find(g.UID); !known && g.UID+g.Name != "" && !s.Predicts() {
			left.Include(&g.CPUs)
		}
	}
	if !left.IsEmpty() {
		s.base = s.base.With(&kubelet.Pod{UID: unattributedUID, Guaranteed: true}, kubelet.Placement{{CPUs: left}})
	}
}

// attributeDevices assigns the devices that the report gives to pods that it does not identify, without those of
// Predicted pods, to the other pods, in the order of admission. Where pods have more devices than the report, it is
// older than the newest Predicted pods. What is left over is held by no pod: its pods have gone, or the kubelet placed
// a Predicted pod otherwise.
func (s *State) attributeDevices() {
	left := unattributedDevices(s.Given)
	if len(left) == 0 {
		return
	}
	unreported := map[string]int{} // devices, by resource
	for _, d := range left {
		unreported[d.Resource] -= d.Count
	}
	var predicted []*Assignment
	for _, a := range s.assignments {
		for resource, n := range requestedDevices(a.Pod) {
			unreported[resource] += n
		}
		if a.Source == Predicted {
			predicted = append(predicted, a)
		}
	}
	slices.SortStableFunc(predicted, func(a, b *Assignment) int {
		return cmp.Compare(uint64(b.Created-1), uint64(a.Created-1)) // a pod without a time is not created yet
	})
	for _, a := range predicted {
		for _, g := range a.Placement {
			for _, d := range g.Devices {
				i := slices.IndexFunc(left, func(l kubelet.Devices) bool {
					return l.Resource == d.Resource && l.Nodes == d.Nodes
				})
				switch {
				case a.Pod.RoleOf(g.Container) == kubelet.Init:
				case unreported[d.Resource] >= d.Count:
					unreported[d.Resource] -= d.Count
				case i >= 0:
					left[i].Count = max(left[i].Count-d.Count, 0)
				}
			}
		}
	}
	for _, a := range s.queue {
		requested := requestedDevices(a.Pod)
		for _, resource := range slices.Sorted(maps.Keys(requested)) {
			if claimed := claimDevices(left, resource, requested[resource]); len(claimed) > 0 {
				a.devices, a.Source = append(a.devices, claimed...), Pinned
			}
		}
	}
	slices.SortFunc(s.queue, byAdmission)
}

// requestedDevices counts by resource what the containers of a pod request, without init containers, which have ended.
func requestedDevices(p *kubelet.Pod) map[string]int {
	n := map[string]int{}
	for _, c := range p.Containers {
		for _, ask := range c.Devices {
			if c.Role != kubelet.Init {
				n[ask.Name] += int(ask.N)
			}
		}
	}
	return n
}

// claimDevices takes n devices of a resource out of left: those of the set with the fewest that suffice, else of
// several sets. It takes nothing where there are not so many.
func claimDevices(left []kubelet.Devices, resource string, n int) (claimed []kubelet.Devices) {
	var sets []*kubelet.Devices
	sum := 0
	for i := range left {
		if left[i].Resource == resource {
			sets, sum = append(sets, &left[i]), sum+left[i].Count
		}
	}
	if n <= 0 || sum < n {
		return nil
	}
	slices.SortStableFunc(sets, func(a, b *kubelet.Devices) int { return cmp.Compare(a.Count, b.Count) })
	if i := slices.IndexFunc(sets, func(d *kubelet.Devices) bool { return d.Count >= n }); i > 0 {
		sets = sets[i:]
	}
	for _, d := range sets {
		if part := min(d.Count, n); part > 0 {
			claimed = append(claimed, kubelet.Devices{Resource: resource, Nodes: d.Nodes, Count: part})
			d.Count, n = d.Count-part, n-part
		}
	}
	return claimed
}

// lowest returns the n lowest CPUs of a set.
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

// Guest is a bound pod as the node's kubelet sees it. It must not be changed.
type Guest struct {
	// Pod is what the pod asks of the kubelet's managers.
	Pod *kubelet.Pod
	// Created is when the pod was created, in seconds since the epoch. A kubelet admits a batch of pods in this order.
	Created int64
	// Prediction is what the scheduler expects the kubelet to give the pod. nil if the scheduler made no prediction.
	Prediction *Prediction
}

// Prediction is a placement that the scheduler predicted when it bound a pod.
type Prediction struct {
	// Model is the kubelet's release, "1.36".
	Model string
	// Gen is the generation of the node's report that the prediction is based on. A report confirms or contradicts the
	// prediction only if the report's generation is higher.
	Gen int64
	// Held is the predicted placement, in the order of the pod's containers.
	Held []kubelet.Held
}

// CPUs returns how many exclusive CPUs a static CPU manager gives the pod; 0 for a nil guest.
func (g *Guest) CPUs() int {
	if g == nil {
		return 0
	}
	return g.Pod.CPUs()
}

// Equal reports whether two guests are the same; each may be nil.
func (g *Guest) Equal(o *Guest) bool { return reflect.DeepEqual(g, o) }

// isCertain reports whether the kubelet would give exactly the prediction if its model is right: no part of the
// prediction depends on a device plugin's choice or on the order of a Go map.
func (p *Prediction) isCertain() bool {
	return !slices.ContainsFunc(p.Held, func(h kubelet.Held) bool {
		return h.Uncertain || slices.ContainsFunc(h.Devices, func(d kubelet.HeldDevices) bool { return d.Open })
	})
}

// Tenant is a guest of one machine. It never changes.
type Tenant struct {
	UID, Namespace, Name string
	*Guest
	// Predicted is Guest.Prediction, translated to the machine; nil without a prediction.
	Predicted kubelet.Placement
}

// NewTenant translates a guest's prediction to m.
func NewTenant(m *topo.Machine, uid, namespace, name string, g *Guest) *Tenant {
	t := &Tenant{UID: uid, Namespace: namespace, Name: name, Guest: g}
	if g.Prediction != nil {
		t.Predicted = kubelet.PlacementOf(m, g.Prediction.Held)
	}
	return t
}
