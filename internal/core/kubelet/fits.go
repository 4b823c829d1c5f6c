package kubelet

import (
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Fits reports whether Admit would admit p. It counts, without an allocation, for a pod whose containers reuse nothing
// of each other and get one NUMA node each, the last one any number of nodes; under pod scope for any pod whose init
// containers ask for nothing. For other pods it calls the exact model. The package comment shows why both agree.
func (s *State) Fits(p *Pod) why.Reason {
	w := s.node.scratch()
	reason, decided := s.countFits(p, w)
	s.node.release(w)
	if decided {
		return reason
	}
	if refusal := s.admission(p).run(nil); refusal != nil {
		return refusal.Reason
	}
	return why.Reason{}
}

// scratch is the working memory of counting. It is kept in the Node's Buffers, so that Fits allocates nothing.
type scratch struct {
	sums sums
	// left has buffers of its own for what containers leave over, one after the other.
	left  counters
	merge hint.Scratch
	lists []hint.List // of a merge by lists
}

// scratch returns buffers for one question. They come from the node's pool if it has one.
func (n *Node) scratch() *scratch {
	if n.buffers != nil {
		if w, ok := n.buffers.Get().(*scratch); ok {
			return w
		}
	}
	return new(scratch)
}

// release returns buffers to the pool.
func (n *Node) release(w *scratch) {
	if n.buffers != nil {
		n.buffers.Put(w)
	}
}

// counters are what is free on a node. Those of a State share its memory, and are not written to.
type counters struct {
	node *Node
	// available are the CPUs that can be given, cpus how many of them each NUMA node has.
	available *cpuset.Set
	cpus      []uint16
	devices   deviceState
	memory    memoryState
	// free has the same counts, as the merge needs them.
	free  *hint.Summary
	merge *hint.Scratch
}

// copyFrom makes c equal to o, in buffers of its own.
func (c *counters) copyFrom(o *counters) {
	c.node, c.available = o.node, o.available
	c.cpus = append(c.cpus[:0], o.cpus...)
	c.devices = append(c.devices[:0], o.devices...)
	c.memory.zones = append(c.memory.zones[:0], o.memory.zones...)
	if len(c.memory.free) != len(o.memory.free) {
		c.memory.free = make([][]int64, len(o.memory.free))
	}
	for t := range o.memory.free {
		c.memory.free[t] = append(c.memory.free[t][:0], o.memory.free[t]...)
	}
	if c.free == nil {
		c.free = c.node.capacity.Summary()
	}
	c.node.fill(c.free, c.cpus, c.devices, &c.memory)
}

// Bounds of what is counted without an allocation.
const (
	maxKinds = 8 // device resources of one pod
	maxTypes = 4 // memory types of one node
)

// sums is what some containers of a pod ask together.
type sums struct {
	// users counts the containers that ask for anything, pinned those that ask for CPUs.
	users, pinned int
	cpus          int64
	// kind[:kinds] are the device resources that are asked for, as indices in Node.kinds, and units how many of each.
	kinds int
	kind  [maxKinds]int
	units [maxKinds]int64
	// memory is asked by type of the node. bytes is true if any is asked.
	memory [maxTypes]int64
	bytes  bool
	// byLists is true if counters decide no merge: a hint is preferred for more than its size, or devices are on
	// several NUMA nodes.
	byLists bool

	request hint.Request
	asks    [maxKinds + 1]hint.Ask
}

// add adds what q asks. It returns false for a question that sums do not describe.
func (t *sums) add(n *Node, q *question) bool {
	uses := q.cpus > 0
	if uses {
		t.cpus += int64(q.cpus)
		t.pinned++
		t.byLists = t.byLists || n.config.CPU.AlignBySocket
	}
	for _, ask := range q.devices {
		kind, known := n.kindOf(ask.Name)
		if !known {
			continue
		}
		if !t.addUnits(kind, ask.N) {
			return false
		}
		uses, t.byLists = true, t.byLists || n.kinds[kind].spread
	}
	for _, ask := range q.memory {
		typ, known := n.typeOf(ask.Name)
		if !known || ask.N <= 0 || ask.N > maxBytes {
			return false
		}
		t.memory[typ] += ask.N
		t.bytes, uses = true, true
	}
	if uses {
		t.users++
	}
	return true
}

// addUnits adds units of one kind of devices; false if sums do not describe them.
func (t *sums) addUnits(kind int, units int64) bool {
	if units <= 0 {
		return false // the kubelet makes hints for 0 too
	}
	for i := range t.kind[:t.kinds] {
		if t.kind[i] == kind {
			t.units[i] = amount.Plus(t.units[i], units)
			return true
		}
	}
	if t.kinds == maxKinds {
		return false
	}
	t.kind[t.kinds], t.units[t.kinds] = kind, units
	t.kinds++
	return true
}

// countFits is Fits by counting; decided is false if the exact model must decide.
func (s *State) countFits(p *Pod, w *scratch) (reason why.Reason, decided bool) {
	n, t := s.node, &w.sums
	// Distributed allocation may never end, or give another number of CPUs than was asked.
	if s.free == nil || n.config.CPU.DistributeAcrossNUMA || !n.uniform || tooWide(n.nodes) ||
		len(n.types) > maxTypes {
		return why.Reason{}, false
	}
	if _, held := s.find(p.UID); held {
		return why.Reason{}, false
	}
	if n.onlyCounts() && n.cpus.podRequest(p) <= s.cpus.available.Len() {
		return why.Reason{}, true
	}
	*t = sums{}
	for i := range p.Containers {
		c, others := &p.Containers[i], t.users
		q := n.question(p, c)
		if !t.add(n, &q) || t.users > others && c.Role != App ||
			n.managesMemory(p) && len(c.Memory) == 0 && !n.config.Model.SkipsEmptyMemory {
			return why.Reason{}, false
		}
	}
	if t.users == 0 {
		return why.Reason{}, true
	}
	c := counters{n, &s.cpus.available, s.cpus.free, s.devices, s.memory, s.free, &w.merge}
	if t.users > 1 && (n.rule.Policy == hint.None || t.pinned > 1 && n.config.CPU.FullPCPUsOnly) {
		return why.Reason{}, false
	}
	if t.users == 1 || n.config.Topology.PodScope {
		_, reason, decided = c.mergeAndAllocate(t)
		return reason, decided
	}
	w.left.copyFrom(&c)
	w.left.merge = &w.merge
	return w.left.countSequence(p, t)
}

// onlyCounts reports whether a pod fits if the node has enough free CPUs: no policy, full-pcpus-only, memory manager or
// device plugin can refuse the pod.
func (n *Node) onlyCounts() bool {
	return n.rule.Policy == hint.None && len(n.types) == 0 && len(n.kinds) == 0 && !n.config.CPU.FullPCPUsOnly
}

// countSequence is countFits container by container (F4 in the package comment). It subtracts from c what each
// container gets.
func (c *counters) countSequence(p *Pod, t *sums) (why.Reason, bool) {
	for i := range p.Containers {
		*t = sums{}
		q := c.node.question(p, &p.Containers[i])
		if t.add(c.node, &q); t.users == 0 {
			continue
		}
		m, reason, decided := c.mergeAndAllocate(t)
		if !decided || !reason.OK() {
			return reason, decided
		}
		if i < len(p.Containers)-1 && !c.subtract(t, m) {
			return why.Reason{}, false
		}
	}
	return why.Reason{}, true
}

// subtract takes what t asks from the one node of m. It returns false if m is not a single node, the node does not have
// all of it, or the managers could take something else.
func (c *counters) subtract(t *sums, m topo.NodeSet) bool {
	node := int(m.First())
	if m.Len() != 1 || int64(c.cpus[node]) < t.cpus || t.bytes && !c.memory.has(t, m) {
		return false
	}
	for i := range t.kinds {
		if !c.subtractUnits(&c.node.kinds[t.kind[i]], t.kind[i], t.units[i], m) {
			return false
		}
	}
	if t.cpus > 0 {
		c.cpus[node] -= uint16(t.cpus)
		c.free.SetFree(0, node, int64(c.cpus[node]))
	}
	if t.bytes {
		for typ := range c.memory.free {
			if t.memory[typ] > 0 {
				c.memory.free[typ][node] -= t.memory[typ]
				c.memory.zones[node].assignments++
				c.free.SetMemory(typ, node, c.memory.free[typ][node])
			}
		}
		c.memory.zones[node].group = m
		c.free.SetGroup(node, m, true)
	}
	return true
}

// subtractUnits takes devices of kind k, the node's kind number at, that are on m or without topology. It returns false
// if they could come from several sets.
func (c *counters) subtractUnits(k *kind, at int, units int64, m topo.NodeSet) bool {
	only := -1 // the one set from which the devices can come
	for set := k.first; set < k.last; set++ {
		if c.devices.free(c.node, set) == 0 || k.hosts != 0 && c.node.sets[set].Nodes&m == 0 {
			continue
		}
		if only >= 0 {
			return false
		}
		only = set
	}
	if only < 0 || int64(c.devices.free(c.node, only)) < units {
		return false
	}
	c.devices[only] += int(units)
	if nodes := c.node.sets[only].Nodes; nodes != 0 {
		c.free.SetFree(at+1, int(nodes.First()), int64(c.devices.free(c.node, only)))
	}
	return true
}

// mergeAndAllocate decides about one merge for all that t sums up, and the allocation by its mask, which it returns (F3
// in the package comment).
func (c *counters) mergeAndAllocate(t *sums) (topo.NodeSet, why.Reason, bool) {
	var answer hint.Answer
	if c.node.rule.Policy != hint.None {
		if t.byLists {
			return 0, why.Reason{}, false
		}
		if cost := c.cost(t); cost > hangs {
			// The merge of SingleNUMANode has fewer candidates than cost counts.
			return 0, tooLong(cost), c.node.rule.Policy != hint.SingleNUMANode
		}
		if answer = c.verdict(t, every); !answer.Admitted {
			return 0, c.causeOf(t), true
		}
	}
	reason, decided := c.allocate(t, answer.Hint.Mask)
	return answer.Hint.Mask, reason, decided
}

// cost returns how long the kubelet takes to merge what t asks. It takes all lists for full; only if that takes too
// long, it counts their hints.
func (c *counters) cost(t *sums) time.Duration {
	n, types := c.node, 0
	for _, bytes := range t.memory {
		if bytes > 0 {
			types++
		}
	}
	candidates := uint64(1)
	for range 1 + t.kinds + types {
		candidates = times(candidates, n.masks(n.nodes))
	}
	if took(candidates) <= hangs {
		return took(candidates)
	}
	candidates = 1
	for hints := range c.free.Lengths(c.request(t, every)) {
		candidates = times(candidates, max(hints, 1))
	}
	return took(candidates)
}

// unitsOn counts the free devices of a kind with a node in m.
func (c *counters) unitsOn(k *kind, m topo.NodeSet) (free int64) {
	for set := k.first; set < k.last; set++ {
		if c.node.sets[set].Nodes&m != 0 {
			free += int64(c.devices.free(c.node, set))
		}
	}
	return free
}

// sumOn returns the sum over the nodes of a mask.
func sumOn[T uint16 | int64](byNode []T, m topo.NodeSet) int64 {
	var sum int64
	for ; m != 0; m &= m - 1 {
		sum += int64(byNode[m.First()])
	}
	return sum
}

// verdict merges one resource alone, or every one.
func (c *counters) verdict(t *sums, only int) hint.Answer {
	return c.free.Verdict(c.request(t, only), c.merge)
}

// every is the number by which request returns all resources.
const every = -1

// request returns what t asks of one resource alone, or of every one. Resource 0 is the CPUs, the next ones are the
// kinds of devices, and the last one is memory.
func (c *counters) request(t *sums, only int) *hint.Request {
	count := 0
	if t.cpus > 0 && (only == every || only == 0) {
		t.asks[count] = hint.Ask{Amount: t.cpus}
		count++
	}
	for i := range t.kinds {
		if c.node.kinds[t.kind[i]].hosts != 0 && (only == every || only == i+1) {
			t.asks[count] = hint.Ask{Resource: t.kind[i] + 1, Amount: t.units[i]}
			count++
		}
	}
	t.request = hint.Request{Asks: t.asks[:count]}
	if t.bytes && (only == every || only == t.kinds+1) {
		t.request.Memory = t.memory[:len(c.node.types)]
	}
	return &t.request
}

// causeOf returns why the merge refuses what t asks, as blame finds it from lists: it asks for each resource alone.
func (c *counters) causeOf(t *sums) why.Reason {
	width, cause, first := 0, why.NoCommonNodes, why.Reason{}
	for i := range t.kinds + 2 {
		only := i + 1 // devices first, then CPUs, at last memory
		if i >= t.kinds {
			only = (i - t.kinds) * (t.kinds + 1)
		}
		own, free, hints := c.alone(t, only)
		answer := c.verdict(t, only)
		switch {
		case !answer.Admitted && free < own.Asked:
			own.Extra = int64(why.NoRoom)
			return own
		case !answer.Admitted && first.OK():
			first = own
		case !answer.Admitted || !hints:
		case width == 0:
			width = answer.Hint.Mask.Len()
		case answer.Hint.Mask.Len() != width:
			cause = why.DifferentWidths
		}
	}
	if !first.OK() {
		return first
	}
	return why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(cause)}
}

// alone returns the reason with which one resource, asked for alone, would be refused, how much of it is free, and
// whether its provider makes any hints.
func (c *counters) alone(t *sums, only int) (r why.Reason, free int64, hints bool) {
	r = why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(why.NotNarrow)}
	if c.node.rule.Policy == hint.SingleNUMANode {
		r.Extra = int64(why.ManyNodes)
	}
	switch only {
	case 0:
		r.Resource, r.Unit, r.Asked = why.CPU, why.CPUs, t.cpus
		return r, sumOn(c.cpus, c.node.cpuNodes), t.cpus > 0
	case t.kinds + 1:
		// A shortage of memory does not refuse: it produces no hints.
		r.Resource, r.Unit = why.Memory, why.Bytes
		if at, known := c.node.typeOf(memoryName); known {
			r.Asked = t.memory[at]
		}
		return r, r.Asked, t.bytes && c.offersMemory(t)
	}
	k := &c.node.kinds[t.kind[only-1]]
	r.Unit, r.Asked = why.Count, t.units[only-1]
	return r, c.unitsOn(k, c.node.all), k.hosts != 0
}

// allocate returns why the managers would not allocate what the merge admits; decided is false if the exact model must
// decide.
func (c *counters) allocate(t *sums, m topo.NodeSet) (why.Reason, bool) {
	n := c.node
	for i := range t.kinds {
		k, free := &n.kinds[t.kind[i]], int64(0)
		for set := k.first; set < k.last; set++ {
			free += int64(c.devices.free(n, set))
		}
		if free < t.units[i] || k.healthy == 0 {
			cause := why.DevicesShort
			if k.healthy == 0 {
				cause = why.DevicesUnhealthy
			}
			if t.users > 1 {
				return why.Reason{}, false // which container fails, and with what, takes the whole admission
			}
			return devicesRefused(cause, t.units[i], free), true
		}
	}
	if t.cpus > 0 {
		fault := n.cpus.smt(c.available, int(t.cpus))
		if fault == cpuOK && sumOn(c.cpus, n.cpuNodes) < t.cpus {
			fault = cpuShort
		}
		if fault != cpuOK {
			if t.users > 1 {
				return why.Reason{}, false
			}
			return n.cpus.reason(c.available, int(t.cpus), fault), true
		}
	}
	if !t.bytes {
		return why.Reason{}, true
	}
	return c.allocateMemory(t, m)
}

// allocateMemory decides whether the memory manager gives memory on the nodes of a merged hint. If it would look for
// other nodes, and finds any, the exact model must decide.
func (c *counters) allocateMemory(t *sums, nodes topo.NodeSet) (why.Reason, bool) {
	has := c.memory.has(t, nodes)
	switch {
	case nodes == 0 || t.users > 1 && !has:
		return why.Reason{}, false
	case has:
		return why.Reason{}, nodes.Len() == 1 || c.memory.allowed(nodes)
	case c.offersMemory(t):
		return why.Reason{}, false
	}
	return why.Reason{
		Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: c.memory.shortage(t, nodes),
		Extra: int64(why.MemoryGroupShort),
	}, true
}

// offersMemory reports whether the memory manager makes any hint for what t asks.
func (c *counters) offersMemory(t *sums) bool {
	return c.free.OffersMemory(t.memory[:len(c.node.types)])
}

// shortage returns the amount that is asked of the first type of which the nodes have too little, 0 if they have enough
// of all.
func (m *memoryState) shortage(t *sums, nodes topo.NodeSet) int64 {
	for typ := range m.free {
		if sumOn(m.free[typ], nodes) < t.memory[typ] {
			return t.memory[typ]
		}
	}
	return 0
}

// has reports whether the nodes have all memory that t asks.
func (m *memoryState) has(t *sums, nodes topo.NodeSet) bool { return m.shortage(t, nodes) == 0 }
