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
	// ModelError is true if the prediction was wrong although it was certain: the model of the kubelet is at fault, and
	// neither a choice that the model leaves open nor memory that the kubelet released after the prediction.
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
		c.ModelError = c.Difference != 0 && a.Prediction.isCertain() && !s.mayHaveReleased(before, a)
		out = append(out, c)
	}
	return out
}

// mayHaveReleased reports whether the kubelet may have released memory of another pod's init containers between a's
// prediction and a's admission. If before is the state that the prediction was made on, it shows which of them had
// memory then; otherwise each one counts that was predicted or shown to have some.
func (s *State) mayHaveReleased(before *State, a *Assignment) bool {
	return slices.ContainsFunc(s.assignments, func(other *Assignment) bool {
		if other.UID == a.UID {
			return false
		}
		old := before.Assignment(other.UID)
		if old != nil && hasInitMemory(other.Pod, old.Placement) {
			return true
		}
		return (old == nil || before.Gen != a.Prediction.Gen) && hasInitMemory(other.Pod, other.Predicted)
	})
}

// hasInitMemory reports whether init containers of a pod have memory that no later container of the pod uses again.
func hasInitMemory(p *kubelet.Pod, placement kubelet.Placement) bool {
	return slices.ContainsFunc(placement, func(g kubelet.Given) bool {
		return p.RoleOf(g.Container) == kubelet.Init &&
			slices.ContainsFunc(g.Memory, func(b kubelet.Block) bool { return b.Bytes > 0 })
	})
}
