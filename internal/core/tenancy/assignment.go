package tenancy

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Source says how a pod's placement is known.
type Source uint8

// Sources, the surest first.
const (
	// Reported: the node reports the placement.
	Reported Source = iota
	// Pinned: the node reports the pod's CPUs, or devices that it attributes to the pod; the rest is computed.
	Pinned
	// Predicted: the scheduler predicted the placement when it bound the pod, and the node has not reported the pod
	// yet.
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
	// Placement is what the pod has. For Pinned and Computed it follows from the state before the pod's admission.
	Placement kubelet.Placement
	// Refused is true if the kubelet, as predicted, would not admit the pod. The pod then has nothing.
	Refused bool
	// claim and devices are unattributed CPUs and devices that are assigned to the pod. An assignment with either is
	// Pinned.
	claim   cpuset.Set
	devices []kubelet.Devices
	// after is the kubelet's state after the pod's admission. nil unless the source is Pinned or Computed.
	after *kubelet.State
}

// Difference returns how the reported placement of the pod differs from the predicted one, as CompareOn does; 0 if
// either is missing. Memory that the kubelet releases when an init container has ended, or gives the container again,
// does not count as a difference.
func (a *Assignment) Difference(m *topo.Machine) Difference {
	if a.Source != Reported || a.Predicted == nil {
		return 0
	}
	return CompareOn(m, atReport(a.Pod, a.Predicted, a.Placement), a.Placement)
}

// newAssignment returns the assignment of a tenant with the surest source.
func (s *State) newAssignment(t *Tenant) *Assignment {
	a := &Assignment{Tenant: t}
	actual, reported := s.placementOf(t)
	pinned := s.PinOf(t.UID) != cpuset.Set{}
	switch p := t.Prediction; {
	case reported:
		a.Source, a.Placement = Reported, orderByContainer(t.Pod, actual)
	case pinned && (s.Imported || p == nil || !s.Predicts()):
		a.Source = Pinned
	case p != nil && (!s.contradicted || p.Gen >= s.Gen):
		a.Source, a.Placement = Predicted, t.Predicted
	default:
		a.Source = Computed
	}
	return a
}

// orderByContainer sorts a placement by the order of the pod's containers. Entries of unknown containers come last.
func orderByContainer(p *kubelet.Pod, placement kubelet.Placement) kubelet.Placement {
	position := func(g kubelet.Given) int {
		if i := p.Index(g.Container); i >= 0 {
			return i
		}
		return len(p.Containers)
	}
	placement = slices.Clone(placement)
	slices.SortStableFunc(placement, func(a, b kubelet.Given) int { return cmp.Compare(position(a), position(b)) })
	return placement
}

// byAdmission is the order in which a kubelet admits pods: first those that it has pinned already, then by creation.
func byAdmission(a, b *Assignment) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Created, b.Created), cmp.Compare(a.UID, b.UID))
}

// admit admits the pod on state, records its placement and returns the state after it.
func (a *Assignment) admit(state *kubelet.State, s *State) *kubelet.State {
	after, placement, refusal := state.Admit(a.Pod)
	a.Refused = refusal != nil
	if a.Refused {
		after, placement = state, nil
	}
	if a.Source == Pinned {
		pin := s.PinOf(a.UID).Union(a.claim)
		cpus := pin.Intersect(s.Node.Machine().Online())
		replaced := !pin.IsEmpty() && placement.CPUs() != cpus
		if replaced {
			placement = replaceCPUs(a.Pod, placement, cpus)
		}
		if replaced || len(a.devices) > 0 {
			placement = replaceDevices(a.Pod, placement, a.devices)
			after, a.Refused = state.With(a.Pod, placement), false
		}
	}
	a.Placement, a.after = placement, after
	return after
}

// replaceCPUs returns a placement whose CPUs are cpus. All of them go to the pod's first container with CPUs: the
// report does not say which container has which, and only their sum matters.
func replaceCPUs(p *kubelet.Pod, placement kubelet.Placement, cpus cpuset.Set) kubelet.Placement {
	placement = slices.Clone(placement)
	for i := range placement {
		placement[i].CPUs = cpuset.Set{}
	}
	name := ""
	if i := slices.IndexFunc(p.Containers, func(c kubelet.Container) bool {
		return c.CPUs > 0 && c.Role != kubelet.Init
	}); i >= 0 {
		name = p.Containers[i].Name
	}
	if g := placement.Find(name); g != nil {
		g.CPUs = cpus
		return placement
	}
	return append(placement, kubelet.Given{Container: name, CPUs: cpus})
}

// replaceDevices returns a placement with the claimed devices instead of others of their resources. A pod's first
// container that requests a resource has all of them: only their sum matters.
func replaceDevices(p *kubelet.Pod, placement kubelet.Placement, claimed []kubelet.Devices) kubelet.Placement {
	placement = slices.Clone(placement)
	for i := range placement {
		placement[i].Devices = slices.DeleteFunc(slices.Clone(placement[i].Devices), func(d kubelet.Devices) bool {
			return slices.ContainsFunc(claimed, func(c kubelet.Devices) bool { return c.Resource == d.Resource })
		})
	}
	for _, d := range claimed {
		i := slices.IndexFunc(p.Containers, func(c kubelet.Container) bool {
			return c.Role != kubelet.Init && slices.ContainsFunc(c.Devices, func(ask kubelet.Amount) bool {
				return ask.Name == d.Resource
			})
		})
		name := p.Containers[i].Name
		if placement.Find(name) == nil {
			placement = append(placement, kubelet.Given{Container: name})
		}
		g := placement.Find(name)
		g.Devices = append(g.Devices, d)
	}
	return placement
}

// spansNodes returns 1 if some memory of the pod comes from several NUMA nodes at once, else 0.
func (a *Assignment) spansNodes() int {
	if slices.ContainsFunc(a.Placement, func(g kubelet.Given) bool {
		return slices.ContainsFunc(g.Memory, func(b kubelet.Block) bool { return b.Nodes.Len() > 1 })
	}) {
		return 1
	}
	return 0
}
