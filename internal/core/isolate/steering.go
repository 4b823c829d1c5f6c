package isolate

import "slices"

// Steering is where the interrupts of a machine may fire. CPUs are kernel ids, sorted and without repetition.
type Steering struct {
	Online []int
	// BootIsolated are the CPUs that the boot has isolated: no interrupt moves there.
	BootIsolated []int
	// Quiet are the exclusive CPUs that interrupts have to leave.
	Quiet []int
	// Nodes are the CPUs of each NUMA node, by the kernel's id of the node.
	Nodes map[int][]int
}

// Housekeeping returns the CPUs that interrupts may move to; none where no CPU is left for them. Then every function of
// the Steering returns the original value.
func (s *Steering) Housekeeping() []int { return without(without(s.Online, s.Quiet), s.BootIsolated) }

// Affinity returns the CPUs of an interrupt that had the original ones: those that are not quiet. Where none of them is
// online, it is the housekeeping CPUs of the NUMA node of its device, -1 for none; where that has none, all of them.
func (s *Steering) Affinity(original []int, node int) []int {
	house := s.Housekeeping()
	if len(house) == 0 {
		return original
	}
	rest := without(original, s.Quiet)
	if len(rest) == len(original) {
		return original // also without an online CPU: that is not ours to mend
	}
	if len(common(rest, s.Online)) > 0 {
		return rest
	}
	if local := common(house, s.Nodes[node]); len(local) > 0 {
		return local
	}
	return house
}

// Banned returns the CPUs that a balancer of interrupts has to leave, if it left the original ones before.
func (s *Steering) Banned(original []int) []int {
	if len(s.Housekeeping()) == 0 {
		return original
	}
	all := slices.Concat(original, s.Quiet)
	slices.Sort(all)
	return slices.Compact(all)
}

// without returns the CPUs of a that are not in b.
func without(a, b []int) []int {
	var out []int
	for _, cpu := range a {
		if _, found := slices.BinarySearch(b, cpu); !found {
			out = append(out, cpu)
		}
	}
	return out
}

// common returns the CPUs that are in both a and b.
func common(a, b []int) []int { return without(a, without(a, b)) }
