package kubelet

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// memoryState is what the memory manager (policy Static) has given. It is empty where it takes no part.
type memoryState struct {
	zones []zone    // by NUMA node
	free  [][]int64 // by type and node. Invariant: 0 ≤ free ≤ Node.allocatable
	// exceeded: some blocks were assigned where less was free. release then gives back more than they took.
	exceeded bool
	// unordered: free follows from the order in which blocks came or went, and that is not known: those of a report
	// came in any order, and stale ones go in that of a Go map. It matters where a node is in several groups of nodes.
	unordered bool
	// released are the nodes of blocks that went since the last admission, which releases all of them at once.
	released []topo.NodeSet
}

// zone is the state of one NUMA node. Invariant: assignments ≥ 0; with none of them, group is the node itself.
type zone struct {
	assignments int
	// group are the nodes that memory of this node was last given together with, itself included.
	group topo.NodeSet
}

// emptyMemory returns the memory manager's state without pods: each NUMA node is a group of its own.
func (n *Node) emptyMemory() memoryState {
	if len(n.types) == 0 {
		return memoryState{}
	}
	m := memoryState{zones: make([]zone, n.nodes)}
	for i := range m.zones {
		m.zones[i].group = 1 << i
	}
	for _, byNode := range n.allocatable {
		m.free = append(m.free, slices.Clone(byNode))
	}
	return m
}

// clone returns a copy that shares nothing with m.
func (m *memoryState) clone() memoryState {
	c := *m
	c.zones, c.free = slices.Clone(m.zones), slices.Clone(m.free)
	for t := range c.free {
		c.free[t] = slices.Clone(c.free[t])
	}
	return c
}

// assign enters a block, of which bytes are newly taken: every node of it counts one assignment more and joins its
// group, and the bytes come from the lowest nodes first.
func (m *memoryState) assign(n *Node, b Block, bytes int64) {
	t, known := n.typeOf(b.Type)
	if !known {
		return
	}
	group, bytes := b.Nodes&n.all, max(bytes, 0)
	for rest := group; rest != 0; rest &= rest - 1 {
		i := rest.First()
		m.zones[i].assignments++
		m.zones[i].group = group
		taken := min(bytes, m.free[t][i])
		m.free[t][i] -= taken
		bytes -= taken
	}
	m.exceeded = m.exceeded || bytes > 0 && group != 0
}

// assignAll enters the blocks of a pod that may have come before or after the others.
func (m *memoryState) assignAll(n *Node, p Placement) {
	for _, g := range p {
		for _, b := range g.Memory {
			if _, known := n.typeOf(b.Type); !known {
				continue
			}
			for rest := b.Nodes & n.all; rest != 0; rest &= rest - 1 {
				z := m.zones[rest.First()]
				m.unordered = m.unordered || z.assignments > 0 && z.group != b.Nodes&n.all
			}
			m.assign(n, b, b.Bytes)
		}
	}
}

// release takes a block out again, from the lowest nodes that have something reserved.
func (m *memoryState) release(n *Node, b Block) {
	t, known := n.typeOf(b.Type)
	if !known {
		return
	}
	group, bytes := b.Nodes&n.all, max(b.Bytes, 0)
	m.unordered = m.unordered || slices.ContainsFunc(m.released, func(other topo.NodeSet) bool {
		return other != group && other&group != 0
	})
	m.released = append(slices.Clip(m.released), group)
	for rest := group; rest != 0; rest &= rest - 1 {
		i := rest.First()
		if m.zones[i].assignments--; m.zones[i].assignments <= 0 {
			m.zones[i] = zone{group: 1 << i}
		}
		back := min(bytes, n.allocatable[t][i]-m.free[t][i])
		m.free[t][i] += back
		bytes -= back
	}
}

// memoryAdmission is the admission of a pod by the memory manager, on a copy of its state.
type memoryAdmission struct {
	node *Node
	pod  *Pod
	memoryState
	// reuse is what finished init containers of the pod leave to later containers, by exact set of nodes.
	reuse []Block
	room  *room // of the hints
}

// managesMemory reports whether the static policy of the memory manager gives the pod memory.
func (n *Node) managesMemory(p *Pod) bool {
	return len(n.types) > 0 && p.Guaranteed && !(p.PodLevel && n.config.Model.SkipsPodLevel)
}

// unknownMemory is KubeletPanics for the first type that no NUMA node has, in whatever amount: the memory manager looks
// it up in a table without it and crashes.
func (n *Node) unknownMemory(ask []Amount) why.Reason {
	for _, a := range ask {
		if _, known := n.typeOf(a.Name); !known {
			return why.Reason{
				Code: why.KubeletPanics, Resource: why.Resource(a.Name), Unit: why.Bytes, Asked: a.N,
				Extra: -1,
			}
		}
	}
	return why.Reason{}
}

// hints is the list that the memory manager offers for each of the asked types alike; nil when it does not care, which
// is also its answer when nothing fits.
func (a *memoryAdmission) hints(ask []Amount) hint.List {
	if len(ask) == 0 {
		return nil
	}
	capable := func(m topo.NodeSet) bool { return a.holds(a.node.allocatable, ask, m, false) }
	list, _ := a.room.list(a.node.all, capable, func(m topo.NodeSet) bool {
		return a.allowed(m) && a.holds(a.free, ask, m, true) && capable(m)
	})
	if len(list) == 0 {
		return nil
	}
	return list
}

// holds reports whether the nodes of m have all asked types, with what the pod can reuse there or without it. The node
// has the types: unknownMemory refuses others before.
func (a *memoryAdmission) holds(byType [][]int64, ask []Amount, m topo.NodeSet, reuse bool) bool {
	for _, w := range ask {
		typ, _ := a.node.typeOf(w.Name)
		sum := sumOn(byType[typ], m)
		if reuse {
			sum += a.reusable(w.Name, m)
		}
		if sum < w.N {
			return false
		}
	}
	return true
}

// allowed is the rule of groups: one node must not be in a group, and of several each must be unused or they must be
// its group.
func (m *memoryState) allowed(nodes topo.NodeSet) bool {
	if nodes.Len() == 1 {
		return m.zones[nodes.First()].group.Len() == 1
	}
	for rest := nodes; rest != 0; rest &= rest - 1 {
		if z := m.zones[rest.First()]; z.assignments > 0 && z.group != nodes {
			return false
		}
	}
	return true
}

// reusable returns how many bytes of a type later containers may reuse on a set of nodes.
func (a *memoryAdmission) reusable(name string, m topo.NodeSet) int64 {
	for _, b := range a.reuse {
		if b.Type == name && b.Nodes == m {
			return b.Bytes
		}
	}
	return 0
}

// allocate gives a container its blocks; before are those of the pod's earlier containers, of which finished init
// containers give up what is used again.
func (a *memoryAdmission) allocate(c *Container, h hint.Hint, before Placement) ([]Block, why.Reason) {
	if !a.node.managesMemory(a.pod) || len(c.Memory) == 0 && a.node.config.Model.SkipsEmptyMemory {
		return nil, why.Reason{}
	}
	if tooWide(a.node.nodes) { // only without a topology policy: the merge would have hung before
		return nil, tooLong(slowest)
	}
	if reason := a.node.unknownMemory(c.Memory); !reason.OK() {
		return nil, reason
	}
	best, cause := a.choose(c.Memory, h)
	if cause != why.NoAllocationCause {
		return nil, a.short(c, best, cause)
	}
	var blocks []Block
	for _, ask := range c.Memory {
		b := Block{Type: ask.Name, Nodes: best, Bytes: ask.N}
		a.assign(a.node, b, max(b.Bytes-a.reusable(b.Type, b.Nodes), 0))
		blocks = append(blocks, b)
	}
	a.keepReusable(c, blocks)
	for _, b := range blocks {
		a.giveUp(b, before)
	}
	return blocks, why.Reason{}
}

// choose converts the merged hint into the nodes that the blocks come from.
func (a *memoryAdmission) choose(ask []Amount, h hint.Hint) (topo.NodeSet, why.AllocationCause) {
	best := h
	if best.Mask == 0 {
		own, found := a.best(ask, 0)
		if !found {
			return 0, why.MemoryShort
		}
		if h.Preferred && !own.Preferred {
			return own.Mask, why.MemoryTooWide
		}
		best = own
	}
	if !a.holds(a.free, ask, best.Mask, false) {
		wider, found := a.best(ask, best.Mask)
		if !found {
			return best.Mask, why.MemoryGroupShort
		}
		if best.Preferred && !wider.Preferred {
			return wider.Mask, why.MemoryTooWide
		}
		best = wider
	}
	if best.Mask.Len() > 1 && !a.allowed(best.Mask) {
		return best.Mask, why.MemoryGrouped
	}
	return best.Mask, why.NoAllocationCause
}

// best is the memory manager's own choice among its hints that include some nodes: preferred ones first, then the
// narrowest, then the lowest. As the preferred ones are the narrowest that an empty machine could offer, that is the
// first by size.
func (a *memoryAdmission) best(ask []Amount, include topo.NodeSet) (hint.Hint, bool) {
	if len(ask) == 0 {
		return hint.Hint{}, false
	}
	var best topo.NodeSet
	least := 0
	for m := range a.node.all.AllSubsets() {
		if best != 0 && m.Len() > best.Len() {
			break
		}
		if a.holds(a.node.allocatable, ask, m, false) {
			if least == 0 {
				least = m.Len()
			}
			if (best == 0 || m < best) && include.Within(m) && a.allowed(m) && a.holds(a.free, ask, m, true) {
				best = m
			}
		}
	}
	return hint.Hint{Mask: best, Preferred: best.Len() == least}, best != 0
}

// keepReusable keeps what later containers may use again: of a regular init container the largest block per type and
// set of nodes. Any other container uses it up.
func (a *memoryAdmission) keepReusable(c *Container, blocks []Block) {
	for _, b := range blocks {
		i := slices.IndexFunc(a.reuse, func(r Block) bool { return r.Type == b.Type && r.Nodes == b.Nodes })
		switch {
		case c.Role != Init && i >= 0:
			a.reuse[i].Bytes = max(a.reuse[i].Bytes-b.Bytes, 0)
		case c.Role == Init && i >= 0:
			a.reuse[i].Bytes = max(a.reuse[i].Bytes, b.Bytes)
		case c.Role == Init:
			a.reuse = append(a.reuse, b)
		}
	}
}

// giveUp takes what b uses again from the blocks of the init containers before it, so that the sum over the containers
// remains what the pod takes.
func (a *memoryAdmission) giveUp(b Block, before Placement) {
	left := b.Bytes
	for i := range before {
		if a.pod.Containers[i].Role != Init {
			continue
		}
		for j := range before[i].Memory {
			old := &before[i].Memory[j]
			if old.Type == b.Type && old.Nodes == b.Nodes {
				used := min(left, old.Bytes)
				old.Bytes -= used
				left -= used
			}
		}
	}
}

// short is the reason for a cause. It names the first type that is short on the nodes, or the first.
func (a *memoryAdmission) short(c *Container, m topo.NodeSet, cause why.AllocationCause) why.Reason {
	r := why.Reason{Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Extra: int64(cause)}
	if m == 0 {
		m = a.node.all
	}
	for _, w := range c.Memory {
		short := !a.holds(a.free, []Amount{w}, m, false)
		if r.Asked == 0 || short {
			r.Asked = w.N
		}
		if short {
			break
		}
	}
	return r
}
