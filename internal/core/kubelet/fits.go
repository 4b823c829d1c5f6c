package kubelet

import (
	"time"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Fits reports whether Admit would admit p. Counters decide it without an allocation for a pod whose containers reuse
// nothing of each other and each get one NUMA node, the last one of them any number; under pod scope for any pod whose
// init containers ask for nothing. For others it goes through the admission.
func (s *State) Fits(p *Pod) why.Reason {
	w := s.node.scratch()
	reason, decided := s.quick(p, w)
	s.node.release(w)
	if decided {
		return reason
	}
	if refusal := s.admission(p).run(nil); refusal != nil {
		return refusal.Reason
	}
	return why.Reason{}
}

// scratch is what counting needs beside a State, kept in the Node's Buffers so that Fits allocates nothing.
type scratch struct {
	sums  sums
	left  counters // with buffers of its own
	merge hint.Scratch
}

func (n *Node) scratch() *scratch {
	if n.buffers != nil {
		if w, ok := n.buffers.Get().(*scratch); ok {
			return w
		}
	}
	return new(scratch)
}

func (n *Node) release(w *scratch) {
	if n.buffers != nil {
		n.buffers.Put(w)
	}
}

// counters are what is left on a node, by count.
type counters struct {
	node      *Node
	available *cpuset.Set // the CPUs that can be given
	cpus      []uint16    // how many of them, by NUMA node
	devices   deviceState
	memory    memoryState
	free      *hint.Summary
	merge     *hint.Scratch
}

// copyOf makes c equal to o, in buffers of its own.
func (c *counters) copyOf(o *counters) {
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
	users  int // containers that ask for anything
	pinned int // those that ask for CPUs
	cpus   int64
	kinds  int
	kind   [maxKinds]int // index in Node.kinds
	units  [maxKinds]int64
	memory [maxTypes]int64
	bytes  bool // some memory is asked
	// byLists: preferences are not by size alone, or devices are on several nodes, so that counters decide no merge.
	byLists bool

	request hint.Request
	asks    [maxKinds + 1]hint.Ask
}

// add adds up what q asks; false for what sums do not describe.
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

func (t *sums) addUnits(kind int, units int64) bool {
	if units <= 0 {
		return false // the kubelet makes hints for 0 too
	}
	for i := range t.kind[:t.kinds] {
		if t.kind[i] == kind {
			t.units[i] = plus(t.units[i], units)
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

// quick decides by counting, or not at all.
func (s *State) quick(p *Pod, w *scratch) (why.Reason, bool) {
	n, t := s.node, &w.sums
	// Distributed allocation may hang or lose count.
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
		_, reason, decided := c.decide(t)
		return reason, decided
	}
	w.left.copyOf(&c)
	w.left.merge = &w.merge
	return w.left.sequence(p, t)
}

// onlyCounts reports whether nothing but the number of CPUs matters: they need not be on certain cores or NUMA nodes,
// and nothing else is given.
func (n *Node) onlyCounts() bool {
	return n.rule.Policy == hint.None && len(n.types) == 0 && len(n.kinds) == 0 && !n.config.CPU.FullPCPUsOnly
}

// sequence decides container by container. It goes on as long as each gets a single NUMA node, of which it is known
// what is taken there.
func (c *counters) sequence(p *Pod, t *sums) (why.Reason, bool) {
	for i := range p.Containers {
		*t = sums{}
		q := c.node.question(p, &p.Containers[i])
		if t.add(c.node, &q); t.users == 0 {
			continue
		}
		m, reason, decided := c.decide(t)
		if !decided || !reason.OK() {
			return reason, decided
		}
		if i < len(p.Containers)-1 && !c.take(t, m) {
			return why.Reason{}, false
		}
	}
	return why.Reason{}, true
}

// take takes what t asks from one node, if that node has it and nothing else could be taken.
func (c *counters) take(t *sums, m topo.NodeSet) bool {
	node := int(m.First())
	if m.Len() != 1 || int64(c.cpus[node]) < t.cpus || t.bytes && !c.memory.has(t, m) {
		return false
	}
	for i := range t.kinds {
		if !c.takeUnits(&c.node.kinds[t.kind[i]], t.kind[i], t.units[i], m) {
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

// takeUnits takes devices on m; false if there is a choice.
func (c *counters) takeUnits(k *kind, at int, units int64, m topo.NodeSet) bool {
	own := -1
	for set := k.first; set < k.last; set++ {
		if c.devices.free(c.node, set) == 0 || k.hosts != 0 && c.node.sets[set].Nodes&m == 0 {
			continue
		}
		if own >= 0 {
			return false
		}
		own = set
	}
	if own < 0 || int64(c.devices.free(c.node, own)) < units {
		return false
	}
	c.devices[own] += int(units)
	if nodes := c.node.sets[own].Nodes; nodes != 0 {
		c.free.SetFree(at+1, int(nodes.First()), int64(c.devices.free(c.node, own)))
	}
	return true
}

// decide is one merge for all that t sums up, with its allocation on the nodes that it returns.
func (c *counters) decide(t *sums) (topo.NodeSet, why.Reason, bool) {
	var answer hint.Answer
	if c.node.rule.Policy != hint.None {
		if t.byLists {
			return 0, why.Reason{}, false
		}
		if cost := c.cost(t); cost > hangs {
			return 0, tooLong(cost), c.node.rule.Policy != hint.SingleNUMANode // which looks at fewer than are counted
		}
		if answer = c.verdict(t, every); !answer.Admitted {
			return 0, c.blame(t), true
		}
	}
	reason, decided := c.allocate(t, answer.Hint.Mask)
	return answer.Hint.Mask, reason, decided
}

// cost is what the merge of what t asks takes the kubelet: as if every list were full, and only if that is too long,
// counted.
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
	candidates = offers(n.cpuNodes, func(m topo.NodeSet) bool { return t.cpus > 0 && sumOn(c.cpus, m) >= t.cpus })
	for i := range t.kinds {
		if k := &n.kinds[t.kind[i]]; k.hosts != 0 {
			enough := func(m topo.NodeSet) bool { return c.unitsOn(k, m) >= t.units[i] }
			candidates = times(candidates, offers(k.walked, enough))
		}
	}
	if types > 0 {
		memory := offers(n.all, func(m topo.NodeSet) bool { return c.memory.allowed(m) && c.memory.has(t, m) })
		for range types {
			candidates = times(candidates, memory)
		}
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

// offers counts the masks that suit, 1 for none.
func offers(walked topo.NodeSet, suits func(topo.NodeSet) bool) uint64 {
	count := uint64(0)
	for m := walked; m != 0; m = (m - 1) & walked {
		if suits(m) {
			count++
		}
	}
	return max(count, 1)
}

func sumOn[T uint16 | int64](byNode []T, m topo.NodeSet) int64 {
	var sum int64
	for ; m != 0; m &= m - 1 {
		sum += int64(byNode[m.First()])
	}
	return sum
}

// every asks for all resources of a pod at once.
const every = -1

// verdict asks for one resource, or for every one: 0 are the CPUs, 1… the kinds, the one after them memory.
func (c *counters) verdict(t *sums, only int) hint.Answer {
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
	return c.free.Verdict(&t.request, c.merge)
}

// blame finds why a pod is refused by asking for each resource alone, as blame of lists does.
func (c *counters) blame(t *sums) why.Reason {
	width, cause, first := 0, why.NoCommonNodes, why.Reason{}
	for i := range t.kinds + 2 {
		only := i + 1 // devices first, then CPUs, at last memory
		if i >= t.kinds {
			only = (i - t.kinds) * (t.kinds + 1)
		}
		own, free, cares := c.part(t, only)
		answer := c.verdict(t, only)
		switch {
		case !answer.Admitted && free < own.Asked:
			own.Extra = int64(why.NoRoom)
			return own
		case !answer.Admitted && first.OK():
			first = own
		case !answer.Admitted || !cares:
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

// part is why one resource would be refused, asked for alone, how much of it is free, and whether it makes any hints.
func (c *counters) part(t *sums, only int) (r why.Reason, free int64, cares bool) {
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

// allocate reports whether the managers would allocate what the merge admits.
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

// allocateMemory decides whether memory on the nodes of a merged hint is given. Where the manager would look for other
// nodes it does not decide, unless there are none.
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
		Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: c.memory.short(t, nodes),
		Extra: int64(why.MemoryGroupShort),
	}, true
}

func (c *counters) offersMemory(t *sums) bool {
	return c.free.OffersMemory(t.memory[:len(c.node.types)])
}

// short is what is asked of the first type that the nodes are short of, 0 if they have all.
func (m *memoryState) short(t *sums, nodes topo.NodeSet) int64 {
	for typ := range m.free {
		if sumOn(m.free[typ], nodes) < t.memory[typ] {
			return t.memory[typ]
		}
	}
	return 0
}

func (m *memoryState) has(t *sums, nodes topo.NodeSet) bool { return m.short(t, nodes) == 0 }
