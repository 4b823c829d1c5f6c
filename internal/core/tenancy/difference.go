package tenancy

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Difference is how an actual placement differs from the predicted one.
type Difference uint8

// Differences, which may be combined.
const (
	// DifferentMask: CPUs or memory are on other NUMA nodes.
	DifferentMask Difference = 1 << iota
	// DifferentCPUs: other CPUs, on the same NUMA nodes.
	DifferentCPUs
	// DifferentMemory: other amounts of memory, or another group of nodes.
	DifferentMemory
	// DifferentDevices: other numbers of devices, or devices outside the NUMA nodes that were predicted.
	DifferentDevices
)

// Kinds are the words for d's differences that the metric tenon_topology_mispredict_total has too; none for 0.
func (d Difference) Kinds() []string {
	var kinds []string
	for i, kind := range [...]string{"mask", "cpus", "memory", "device"} {
		if d&(1<<i) != 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Compare holds an actual placement against the predicted one. Which of equal devices a container gets, and how they
// are split over the nodes of a mask, is decided by the device plugin: it does not count as a difference.
func Compare(predicted, actual kubelet.Placement) Difference {
	var d Difference
	for p, a := range pairs(predicted, actual) {
		if p.CPUs != a.CPUs {
			d |= DifferentCPUs
		}
		if !sameBlocks(p.Memory, a.Memory) {
			d |= DifferentMemory
		}
		if !sameDevices(p, a.Devices) {
			d |= DifferentDevices
		}
	}
	return d
}

// CompareOn is Compare, where CPUs and memory on other NUMA nodes of m are reported as DifferentMask alone.
func CompareOn(m *topo.Machine, predicted, actual kubelet.Placement) Difference {
	d := Compare(predicted, actual)
	if d&(DifferentCPUs|DifferentMemory) == 0 {
		return d
	}
	for p, a := range pairs(predicted, actual) {
		if p.NodesOn(m) != a.NodesOn(m) {
			return d&^(DifferentCPUs|DifferentMemory) | DifferentMask
		}
	}
	return d
}

// pairs yields what each container of one of two placements has in both.
func pairs(predicted, actual kubelet.Placement) iter.Seq2[*kubelet.Given, *kubelet.Given] {
	return func(yield func(p, a *kubelet.Given) bool) {
		for i := range predicted {
			a := cmp.Or(actual.Find(predicted[i].Container), &kubelet.Given{})
			if !yield(&predicted[i], a) {
				return
			}
		}
		for i := range actual {
			if predicted.Find(actual[i].Container) == nil && !yield(&kubelet.Given{}, &actual[i]) {
				return
			}
		}
	}
}

// sameBlocks reports whether two lists have equal blocks, in any order.
func sameBlocks(a, b []kubelet.Block) bool {
	order := func(x, y kubelet.Block) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Nodes, y.Nodes))
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortStableFunc(a, order)
	slices.SortStableFunc(b, order)
	return slices.Equal(a, b)
}

// sameDevices compares counts by resource; devices with topology must touch the nodes that were predicted.
func sameDevices(predicted *kubelet.Given, actual []kubelet.Devices) bool {
	counts := map[string]int{}
	nodes := map[string]topo.NodeSet{}
	for _, d := range predicted.Devices {
		counts[d.Resource] += d.Count
		nodes[d.Resource] |= d.Nodes
	}
	for _, d := range actual {
		counts[d.Resource] -= d.Count
		if d.Nodes != 0 && d.Nodes&(nodes[d.Resource]|predicted.Hint.Mask) == 0 {
			return false
		}
	}
	for _, n := range counts {
		if n != 0 {
			return false
		}
	}
	return true
}

// Confirmation is a predicted placement of which the node has reported the actual one.
type Confirmation struct {
	*Tenant
	Actual []kubelet.Held
	// Difference is 0 if the prediction was right.
	Difference Difference
	// ModelError is true if the prediction was certain and wrong, and the model gives the actual placement in no state
	// that the kubelet may have had when it admitted the pod. Otherwise the kubelet had something else to give than the
	// prediction knew: pods had come or left, in another order than they were bound, or released memory.
	ModelError bool
}

// Confirmations returns the predictions that s confirms or contradicts and before did not: the pods with a prediction
// that the node has reported since, by UID. Both states may be nil.
func (s *State) Confirmations(before *State) []Confirmation {
	if s == nil || before != nil && s.Facts == before.Facts {
		return nil
	}
	var out []Confirmation
	for _, a := range s.assignments {
		old := before.Assignment(a.UID)
		if a.Source != Reported || a.Predicted == nil || old != nil && old.Source == Reported {
			continue
		}
		m := s.Node.Machine()
		c := Confirmation{Tenant: a.Tenant, Actual: kubelet.HeldOf(m, a.Placement), Difference: a.Difference(m)}
		c.ModelError = c.Difference != 0 && a.Prediction.isCertain() && !s.explains(before, a)
		out = append(out, c)
	}
	return out
}

// maxHistories bounds the histories that explains tries. A placement that more of them could explain is not judged.
const maxHistories = 256

// explains reports whether the model gives a's reported placement in a state that the kubelet may have had when it
// admitted a. What the reports of before and s both show was there. What only one of them shows, pods that came or
// left and init containers that released memory, may have changed before or after a's admission, in any order.
func (s *State) explains(before *State, a *Assignment) bool {
	var earlier []Grant
	if before != nil {
		earlier = before.Given
		if !before.Node.Equal(s.Node) {
			return true // the prediction was about other settings
		}
	}
	if s.Unattributed || before != nil && before.Unattributed {
		return true
	}
	state, histories := s.Node.Empty(), 1
	var open []history
	for _, uid := range uids(earlier, s.Given) {
		if uid == a.UID {
			continue
		}
		h := history{pod: &kubelet.Pod{UID: uid}}
		if other := cmp.Or(s.Assignment(uid), before.Assignment(uid)); other != nil {
			h.pod = other.Pod
		}
		h.stages = stagesBetween(h.pod, placementIn(earlier, uid), placementIn(s.Given, uid))
		if len(h.stages) == 1 {
			state = state.With(h.pod, h.stages[0])
			continue
		}
		open = append(open, h)
		if histories *= len(h.stages); histories > maxHistories {
			return true
		}
	}
	return s.explainsFrom(state, open, a)
}

// history is what a pod may have had of the kubelet between two reports: nil while it was not there.
type history struct {
	pod    *kubelet.Pod
	stages []kubelet.Placement
}

// stagesBetween returns what a pod has had between two reports. Its init containers release memory one by one. Of a pod
// that has left, no state between is tried: with so many, a wrong model would be explained as well.
func stagesBetween(p *kubelet.Pod, first, last kubelet.Placement) []kubelet.Placement {
	stages, stage := []kubelet.Placement{first}, slices.Clone(first)
	if last == nil {
		stage = nil
	}
	for i := range stage {
		ended := p.RoleOf(stage[i].Container) == kubelet.Init && len(stage[i].Memory) > 0
		if g := last.Find(stage[i].Container); ended && (g == nil || len(g.Memory) == 0) {
			stage[i].Memory = nil
			stages = append(stages, slices.Clone(stage))
		}
	}
	if !stages[len(stages)-1].Equal(last) {
		stages = append(stages, last)
	}
	return stages
}

// explainsFrom is explains for a state with the pods of all histories but open.
func (s *State) explainsFrom(state *kubelet.State, open []history, a *Assignment) bool {
	if len(open) > 0 {
		return slices.ContainsFunc(open[0].stages, func(stage kubelet.Placement) bool {
			next := state
			if stage != nil {
				next = state.With(open[0].pod, stage)
			}
			return s.explainsFrom(next, open[1:], a)
		})
	}
	_, placement, refusal := state.Admit(a.Pod)
	if refusal != nil {
		return refusal.Uncertain
	}
	m := s.Node.Machine()
	p := Prediction{Held: kubelet.HeldOf(m, placement)}
	return !p.isCertain() || CompareOn(m, atReport(a.Pod, placement, a.Placement), a.Placement) == 0
}

// uids returns the UIDs of two lists of grants, which are sorted by UID.
func uids(a, b []Grant) []string {
	var all []string
	for _, g := range slices.Concat(a, b) {
		all = append(all, g.UID)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// placementIn returns what a report says that a pod has; nil if it says nothing of the pod.
func placementIn(given []Grant, uid string) kubelet.Placement {
	own := grantsOf(given, uid)
	switch {
	case len(own) == 0:
		return nil
	case own[0].Placement == nil:
		return kubelet.Placement{{CPUs: own[0].CPUs}}
	}
	return own[0].Placement
}
