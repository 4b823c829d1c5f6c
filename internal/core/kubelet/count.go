package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/why"
)

// count answers q from counters; false where only hint lists do.
func (a *admission) count(q *question) (hint.Answer, bool) {
	n := a.node
	if n.capacity == nil || a.own != nil {
		return hint.Answer{}, false
	}
	var r hint.Request
	if q.cpus > 0 {
		r.Asks = append(r.Asks, hint.Ask{Amount: int64(q.cpus), Reuse: a.cpus.reuseByNode()})
	}
	for _, ask := range q.devices {
		i, known := n.kindOf(ask.Name)
		if !known || n.kinds[i].hosts == 0 {
			continue
		}
		if ask.N == 0 {
			return hint.Answer{}, false // counters take it for no request, the kubelet offers every mask
		}
		own := hint.Ask{Resource: i + 1, Amount: ask.N}
		if q.container != nil {
			own.Reuse = widen(a.devices.reuse[n.kinds[i].first:n.kinds[i].last])
		}
		r.Asks = append(r.Asks, own)
	}
	if len(q.memory) > 0 {
		r.Memory = make([]int64, len(n.types))
		for _, ask := range q.memory {
			t, known := n.typeOf(ask.Name)
			if !known || ask.N == 0 {
				return hint.Answer{}, false
			}
			r.Memory[t] = ask.N
		}
		for _, b := range a.memory.reuse {
			t, _ := n.typeOf(b.Type)
			r.Blocks = append(r.Blocks, hint.Block{Type: t, Nodes: b.Nodes, Bytes: b.Bytes})
		}
	}
	answer := a.counters().Verdict(&r, nil)
	return answer, answer.Certainty != hint.ByLists
}

// counters are those of the state as it is now.
func (a *admission) counters() *hint.Summary {
	if len(a.given) == 0 {
		return a.start.free
	}
	free := make([]uint16, a.node.nodes)
	for i := range a.node.cpus.nodes {
		u := &a.node.cpus.nodes[i]
		free[u.id] = uint16(u.cpus.CountIn(&a.cpus.available))
	}
	return a.node.summary(free, a.devices.given, &a.memory.memoryState)
}

// reuseByNode counts the CPUs that init containers leave, by NUMA node; nil for none.
func (a *cpuAdmission) reuseByNode() []int64 {
	if a.reuse.IsEmpty() {
		return nil
	}
	count := make([]int64, len(a.policy.capacity))
	for i := range a.policy.nodes {
		u := &a.policy.nodes[i]
		count[u.id] = int64(u.cpus.CountIn(&a.reuse))
	}
	return count
}

// widen returns counts as a Request wants them, nil if all are 0.
func widen(counts []int) []int64 {
	var wide []int64
	for i, count := range counts {
		if count > 0 {
			if wide == nil {
				wide = make([]int64, len(counts))
			}
			wide[i] = int64(count)
		}
	}
	return wide
}

// Fits tells whether Admit would admit p. Where counters decide it, it allocates nothing: for a pod of which one
// container asks for anything that the managers give, and under pod scope for any pod whose init containers do not. For
// others it goes through the admission.
func (s *State) Fits(p *Pod) why.Reason {
	if reason, decided := s.quick(p); decided {
		return reason
	}
	a := s.admission(p)
	if refusal := a.run(nil); refusal != nil {
		return refusal.Reason
	}
	return why.Reason{}
}

// Bounds of what is counted on the stack.
const (
	maxKinds = 8 // device resources of one pod
	maxTypes = 4 // memory types of one node
)

// sums is what the containers of a pod ask together.
type sums struct {
	users  int // containers that ask for anything
	pinned int // those that ask for CPUs
	cpus   int64
	kinds  int
	kind   [maxKinds]int // index in Node.kinds
	units  [maxKinds]int64
	memory [maxTypes]int64
	bytes  bool // some memory is asked
}

// sum adds up; false for a pod that sums do not describe.
func (s *State) sum(p *Pod, t *sums) bool {
	n := s.node
	if len(n.types) > maxTypes {
		return false
	}
	managed := n.managesMemory(p)
	for i := range p.Containers {
		c := &p.Containers[i]
		uses := false
		if cpus := n.cpus.request(p, c); cpus > 0 {
			t.cpus += int64(cpus)
			t.pinned++
			uses = true
		}
		for _, ask := range c.Devices {
			at, known := n.kindOf(ask.Name)
			if !known {
				continue
			}
			if !t.addUnits(at, ask.N) {
				return false
			}
			uses = true
		}
		if managed {
			if len(c.Memory) == 0 && !n.config.Model.SkipsEmptyMemory {
				return false
			}
			for _, ask := range c.Memory {
				typ, known := n.typeOf(ask.Name)
				if !known || ask.N <= 0 || ask.N > maxBytes {
					return false
				}
				t.memory[typ] += ask.N
				t.bytes, uses = true, true
			}
		}
		if uses {
			t.users++
			if c.Role == Init && s.node.config.Topology.PodScope || c.Role != App && managed {
				return false
			}
		}
	}
	return t.users <= 1 || n.config.Topology.PodScope && n.config.Topology.Policy != hint.None
}

func (t *sums) addUnits(kind int, units int64) bool {
	if units <= 0 {
		return false
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
func (s *State) quick(p *Pod) (why.Reason, bool) {
	n := s.node
	// Distributed allocation may hang or lose count, and where cores differ the allocation takes other CPUs than it should.
	if s.free == nil || n.config.CPU.DistributeAcrossNUMA || n.cpus.perCore != n.cpus.maxThreads {
		return why.Reason{}, false
	}
	var t sums
	if !s.sum(p, &t) {
		return why.Reason{}, false
	}
	if t.users == 0 {
		return why.Reason{}, true
	}
	if _, held := s.find(p.UID); held {
		return why.Reason{}, false
	}
	if n.nodes > hangNodes || t.pinned > 1 && n.config.CPU.FullPCPUsOnly {
		return why.Reason{}, false
	}
	var answer hint.Answer
	if n.rule.Policy != hint.None {
		answer = s.verdict(&t, every)
		if answer.Certainty == hint.ByLists {
			return why.Reason{}, false
		}
		if !answer.Admitted {
			return s.blame(&t), true
		}
	}
	return s.quickAllocate(&t, answer.Hint.Mask)
}

// every asks for all resources of a pod at once.
const every = -1

// verdict asks for one resource, or for every one: 0 are the CPUs, 1… the kinds, the one after them memory.
func (s *State) verdict(t *sums, only int) hint.Answer {
	var asks [maxKinds + 1]hint.Ask
	count := 0
	if t.cpus > 0 && (only == every || only == 0) {
		asks[count] = hint.Ask{Amount: t.cpus}
		count++
	}
	for i := range t.kinds {
		if s.node.kinds[t.kind[i]].hosts != 0 && (only == every || only == i+1) {
			asks[count] = hint.Ask{Resource: t.kind[i] + 1, Amount: t.units[i]}
			count++
		}
	}
	r := hint.Request{Asks: asks[:count]}
	if t.bytes && (only == every || only == t.kinds+1) {
		r.Memory = t.memory[:len(s.node.types)]
	}
	return s.free.Verdict(&r, nil)
}

// blame finds why a pod is refused by asking for each resource alone.
func (s *State) blame(t *sums) why.Reason {
	width, cause := 0, why.NoCommonNodes
	for only := range t.kinds + 2 {
		answer := s.verdict(t, only)
		if !answer.Admitted {
			return s.blameOne(t, only)
		}
		if answer.Hint.Mask == s.node.all && s.indifferent(t, only) {
			continue
		}
		if own := answer.Hint.Mask.Len(); width == 0 {
			width = own
		} else if own != width {
			cause = why.DifferentWidths
		}
	}
	return why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(cause)}
}

// indifferent reports whether a resource, asked for alone, makes no hints.
func (s *State) indifferent(t *sums, only int) bool {
	switch only {
	case 0:
		return t.cpus == 0
	case t.kinds + 1:
		return !t.bytes || !s.memory.offers(t)
	}
	return s.node.kinds[t.kind[only-1]].hosts == 0
}

// blameOne says why one resource is refused, asked for alone.
func (s *State) blameOne(t *sums, only int) why.Reason {
	r := why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(why.NotNarrow)}
	free := int64(0)
	switch only {
	case 0:
		r.Resource, r.Unit, r.Asked = why.CPU, why.CPUs, t.cpus
		for _, cpus := range s.cpus.free {
			free += int64(cpus)
		}
	case t.kinds + 1:
		r.Resource, r.Unit, r.Asked = why.Memory, why.Bytes, t.memory[0]
		free = r.Asked
		if at, known := s.node.typeOf(memoryName); known {
			r.Asked = t.memory[at]
		}
	default:
		k := &s.node.kinds[t.kind[only-1]]
		r.Unit, r.Asked = why.Count, t.units[only-1]
		for set := k.first; set < k.last; set++ {
			if s.node.sets[set].Nodes != 0 {
				free += int64(s.devices.free(s.node, set))
			}
		}
	}
	switch {
	case free < r.Asked:
		r.Extra = int64(why.NoRoom)
	case s.node.rule.Policy == hint.SingleNUMANode:
		r.Extra = int64(why.ManyNodes)
	}
	return r
}

// quickAllocate tells whether the managers would allocate what the merge admits.
func (s *State) quickAllocate(t *sums, m hint.Mask) (why.Reason, bool) {
	n := s.node
	for i := range t.kinds {
		k, free := &n.kinds[t.kind[i]], int64(0)
		for set := k.first; set < k.last; set++ {
			free += int64(s.devices.free(n, set))
		}
		if free < t.units[i] || k.healthy == 0 {
			cause := why.DevicesShort
			if k.healthy == 0 {
				cause = why.DevicesUnhealthy
			}
			if t.users > 1 {
				return why.Reason{}, false // which container fails, and with what, takes the whole admission
			}
			return why.Reason{Code: why.KubeletAdmission, Unit: why.Count, Asked: t.units[i], Free: free, Extra: int64(cause)}, true
		}
	}
	if t.cpus > 0 {
		if fault := s.quickCPUs(t); fault != cpuOK {
			if t.users > 1 {
				return why.Reason{}, false
			}
			return n.cpus.reason(int(t.cpus), fault), true
		}
	}
	if !t.bytes {
		return why.Reason{}, true
	}
	return s.memory.quick(t, m)
}

func (s *State) quickCPUs(t *sums) cpuFault {
	if fault := s.node.cpus.smt(&s.cpus.available, int(t.cpus)); fault != cpuOK {
		return fault
	}
	free := int64(0)
	for _, cpus := range s.cpus.free {
		free += int64(cpus)
	}
	if free < t.cpus {
		return cpuShort
	}
	return cpuOK
}

// quick decides whether memory on the nodes of a merged hint is given. Where the manager would look for other nodes it
// does not decide, unless there are none.
func (m *memoryState) quick(t *sums, nodes hint.Mask) (why.Reason, bool) {
	switch {
	case nodes == 0 || t.users > 1 && !m.has(t, nodes):
		return why.Reason{}, false
	case m.has(t, nodes):
		return why.Reason{}, nodes.Len() == 1 || m.allowed(nodes)
	case m.offers(t):
		return why.Reason{}, false
	}
	return why.Reason{
		Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: m.shortest(t, nodes),
		Extra: int64(why.MemoryShortBeside),
	}, true
}

// shortest is what is asked of the first type that the nodes are short of.
func (m *memoryState) shortest(t *sums, nodes hint.Mask) int64 {
	for typ := range m.free {
		var sum int64
		for rest := nodes; rest != 0; rest &= rest - 1 {
			sum += m.free[typ][rest.First()]
		}
		if sum < t.memory[typ] {
			return t.memory[typ]
		}
	}
	return 0
}

// has reports whether the nodes have all that is asked.
func (m *memoryState) has(t *sums, nodes hint.Mask) bool {
	for typ := range m.free {
		var sum int64
		for rest := nodes; rest != 0; rest &= rest - 1 {
			sum += m.free[typ][rest.First()]
		}
		if sum < t.memory[typ] {
			return false
		}
	}
	return true
}

// offers reports whether the memory manager has any hint: one node outside groups, a group, or all unused nodes.
func (m *memoryState) offers(t *sums) bool {
	var unused hint.Mask
	for i := range m.zones {
		z := &m.zones[i]
		if (z.group.Len() == 1 || m.allowed(z.group)) && m.has(t, z.group) {
			return true
		}
		if z.assignments == 0 {
			unused |= 1 << i
		}
	}
	return unused != 0 && m.has(t, unused)
}
