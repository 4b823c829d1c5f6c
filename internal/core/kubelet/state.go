package kubelet

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// State is what a node's kubelet has given to whom. It is immutable; a new one shares all that did not change.
type State struct {
	node    *Node
	cpus    *cpuState
	memory  memoryState
	devices deviceState
	held    []holder // ascending UID
	// free counts what is left, for answers without hint lists; nil where Node.capacity is.
	free *hint.Summary
}

// holder is a pod with what it was given.
type holder struct {
	uid   string
	given Placement
	// devices is how many of each set of the node the pod takes: an init container's that a later container uses count
	// once.
	devices deviceState
}

// Empty returns the state of a node that holds no pod.
func (n *Node) Empty() *State {
	s := &State{node: n, cpus: n.cpus.empty(), memory: n.emptyMemory(), devices: make(deviceState, len(n.sets))}
	s.count()
	return s
}

// Node returns the node.
func (s *State) Node() *Node { return s.node }

// find returns the position of a pod, or the one where it would be inserted and false.
func (s *State) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(s.held, uid, func(h holder, uid string) int { return cmp.Compare(h.uid, uid) })
}

// Placement returns what a pod has; false for one that the node does not hold. It belongs to the State.
func (s *State) Placement(uid string) (Placement, bool) {
	if i, ok := s.find(uid); ok {
		return s.held[i].given, true
	}
	return nil, false
}

// Placements yields the pods that the node holds in ascending order of UID. What it yields belongs to the State.
func (s *State) Placements() iter.Seq2[string, Placement] {
	return func(yield func(string, Placement) bool) {
		for i := range s.held {
			if !yield(s.held[i].uid, s.held[i].given) {
				return
			}
		}
	}
}

// With returns s where the pod has what pl says, whatever it had before: what the kubelet reports counts, even where it
// contradicts the rest. Units that two pods have count once as taken. What the node does not have – CPUs, NUMA nodes,
// memory types, resources – is kept in the Placement and takes nothing. Memory that the pod has already remains where
// it is. pl is not kept.
func (s *State) With(p *Pod, pl Placement) *State {
	next := s.Without(p.UID)
	if next == s {
		next = s.clone()
	}
	i, held := s.find(p.UID)
	keepsMemory := held && sameMemory(s.held[i].given, pl)
	if keepsMemory {
		next.memory = s.memory.clone()
	}
	given := make(Placement, len(pl))
	var grants []cpuGrant
	for i, g := range pl {
		g.Memory, g.Devices = slices.Clone(g.Memory), slices.Clone(g.Devices)
		given[i] = g
		if !g.CPUs.IsEmpty() {
			grants = append(grants, cpuGrant{g.Container, g.CPUs})
		}
	}
	if !held {
		next.memory.released = nil // the kubelet has admitted the pod since
	}
	if !keepsMemory {
		next.memory.assignAll(next.node, given)
	}
	next.cpus = next.cpus.with(p.UID, grants)
	h := holder{uid: p.UID, given: given, devices: next.node.taken(p, given)}
	next.devices.add(h.devices, 1)
	next.insert(h)
	next.count()
	return next
}

// sameMemory reports whether containers have the same blocks, in the same order.
func sameMemory(a, b Placement) bool {
	without := func(g Given) bool { return len(g.Memory) == 0 }
	return slices.EqualFunc(slices.DeleteFunc(slices.Clone(a), without), slices.DeleteFunc(slices.Clone(b), without),
		func(a, b Given) bool { return a.Container == b.Container && slices.Equal(a.Memory, b.Memory) })
}

// Without returns s where the pod has nothing. Unknown UIDs change nothing.
//
// Memory comes back as the kubelet gives it: from the lowest node of a group on. So the split over the nodes of a group
// need not be the one before the pod came; the sum is.
func (s *State) Without(uid string) *State {
	i, ok := s.find(uid)
	if !ok {
		return s
	}
	next := s.clone()
	gone := s.held[i]
	next.held = slices.Delete(slices.Clone(s.held), i, i+1)
	next.cpus = next.cpus.without(uid)
	if next.memory.exceeded {
		unordered := next.memory.unordered
		next.memory = next.node.emptyMemory()
		next.memory.unordered = unordered
		for i := range next.held {
			next.memory.assignAll(next.node, next.held[i].given)
		}
	} else {
		for _, g := range gone.given {
			for _, b := range g.Memory {
				next.memory.release(next.node, b)
			}
		}
	}
	next.devices.add(gone.devices, -1)
	next.count()
	return next
}

// clone copies all that may change but held, which is replaced where it does: it is by far the largest part.
func (s *State) clone() *State {
	next := *s
	next.memory = s.memory.clone()
	next.devices = slices.Clone(s.devices)
	return &next
}

// Uncertain reports whether what p would get follows from something that s does not know: what the kubelet released in
// random order, or devices that a plugin chose and no report has shown.
func (s *State) Uncertain(p *Pod) bool {
	if s.memory.unordered && s.node.managesMemory(p) &&
		slices.ContainsFunc(p.Containers, func(c Container) bool { return len(c.Memory) > 0 }) {
		return true
	}
	if s.node.config.Topology.Policy == hint.None {
		return false // no merge asks where devices are
	}
	return slices.ContainsFunc(s.held, func(h holder) bool {
		return slices.ContainsFunc(h.given, func(g Given) bool {
			return g.Uncertain || slices.ContainsFunc(g.Devices, func(d Devices) bool {
				return d.Open && p.asksDevice(d.Resource)
			})
		})
	})
}

// insert adds a holder, or replaces that of the same pod. Other states keep their lists.
func (s *State) insert(h holder) {
	i, known := s.find(h.uid)
	if known {
		s.held = slices.Clone(s.held)
		s.held[i] = h
		return
	}
	s.held = slices.Insert(slices.Clip(s.held), i, h)
}

// count computes the summary of what is free.
func (s *State) count() { s.free = s.node.summary(s.cpus.free, s.devices, &s.memory) }

// summary are the counters of a state: CPUs by NUMA node, devices given by set, and memory.
func (n *Node) summary(cpus []uint16, devices deviceState, memory *memoryState) *hint.Summary {
	if n.capacity == nil {
		return nil
	}
	f := n.capacity.Summary()
	n.fill(f, cpus, devices, memory)
	return f
}

// fill writes what is free on each NUMA node to a summary: CPUs in row 0, then devices of sets on one node, then
// memory.
func (n *Node) fill(f *hint.Summary, cpus []uint16, devices deviceState, memory *memoryState) {
	for i, free := range cpus {
		f.SetFree(0, i, int64(free))
	}
	for i, k := range n.kinds {
		for set := k.first; set < k.last; set++ {
			if nodes := n.sets[set].Nodes; nodes.Len() == 1 {
				f.SetFree(i+1, int(nodes.First()), int64(devices.free(n, set)))
			}
		}
	}
	for i, z := range memory.zones {
		for t := range n.types {
			f.SetMemory(t, i, memory.free[t][i])
		}
		f.SetGroup(i, z.group, z.assignments > 0)
	}
}
