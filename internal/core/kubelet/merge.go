package kubelet

import (
	"iter"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// hangs is the time from which on a merge counts as one that never ends. The kubelet admits no other pod meanwhile.
const hangs = 30 * time.Second

// merge returns what the Topology Manager answers for a container, or for the whole pod if c is nil.
func (a *admission) merge(c *Container, w watch) (hint.Answer, why.Reason) {
	q := a.node.question(a.pod, c)
	if a.blocks(&q) == nil { // for blocks that are given the manager looks nothing up
		if reason := a.node.unknownMemory(q.memory); !reason.OK() {
			return hint.Answer{}, reason
		}
	}
	if w == nil { // else w may keep the lists
		a.room.hints, a.room.named = a.room.hints[:0], a.room.named[:0]
	}
	lists, reason := a.neverEnds(&q)
	if !reason.OK() {
		if w != nil {
			w(c, nil)
		}
		return hint.Answer{}, reason
	}
	if lists == nil {
		lists = a.lists(&q)
	}
	if w == nil {
		a.room.named = lists
	}
	answer := a.answer(lists)
	if w != nil {
		w(c, lists)
	}
	if answer.Admitted {
		return answer, why.Reason{}
	}
	return answer, a.affinity(&q, lists)
}

// answer merges the lists of all managers.
func (a *admission) answer(lists []hint.Named) hint.Answer {
	w := a.node.scratch()
	defer a.node.release(w)
	w.lists = w.lists[:0]
	for i := range lists {
		w.lists = append(w.lists, lists[i].List)
	}
	return a.node.rule.Answer(w.lists, &w.merge)
}

// anyAbove0 reports whether one of the counts is positive.
func anyAbove0(counts []int) bool {
	return slices.ContainsFunc(counts, func(n int) bool { return n > 0 })
}

// tooWide reports whether a kubelet does not come to the end of all masks of so many nodes (kubernetes#135541).
func tooWide(nodes int) bool { return nodes > hint.WalkNodes }

// neverEnds refuses a merge that takes the kubelet longer than hangs. It counts the hints, or makes and returns the
// lists, only if full ones would take that long.
func (a *admission) neverEnds(q *question) ([]hint.Named, why.Reason) {
	candidates, wide := uint64(1), false
	for nodes := range a.node.walks(q) {
		candidates, wide = times(candidates, a.node.masks(nodes)), wide || tooWide(nodes)
	}
	if !wide && took(candidates) <= hangs {
		return nil, why.Reason{}
	}
	var lists []hint.Named
	cost, counted := a.counted(q)
	if !counted {
		if !wide {
			lists = a.lists(q)
		}
		cost = a.cost(q, lists)
	}
	if cost > hangs {
		return nil, tooLong(cost)
	}
	return lists, why.Reason{}
}

// counted is the Cost of a merge by the counters of the state; false where these do not have what is free, or a list
// is not of their kind. Under SingleNUMANode lists have fewer candidates than counters count.
func (a *admission) counted(q *question) (time.Duration, bool) {
	n, s, t := a.node, a.start, sums{}
	if len(a.given) > 0 || a.own != nil || s.free == nil || n.rule.Policy == hint.SingleNUMANode ||
		tooWide(n.nodes) || len(n.types) > maxTypes || !t.add(n, q) || t.byLists {
		return 0, false
	}
	c := counters{node: n, free: s.free}
	return c.cost(&t), true
}

// tooLong refuses a pod for which the kubelet would take this long.
func tooLong(cost time.Duration) why.Reason {
	return why.Reason{Code: why.KubeletWouldHang, Extra: int64(cost / time.Second)}
}

// question is what one merge is about: a container, or the whole pod.
type question struct {
	container *Container // nil for the whole pod
	cpus      int        // 0 if the CPU manager makes no hints
	memory    []Amount   // nil if the memory manager makes no hints
	devices   []Amount   // sorted by name
}

// question is what the managers are asked for a container of p, or for all of p (nil).
func (n *Node) question(p *Pod, c *Container) question {
	var q question
	if c == nil {
		q = question{cpus: n.cpus.podRequest(p), memory: p.memory(), devices: p.devices()}
	} else {
		q = question{container: c, cpus: n.cpus.request(p, c), memory: c.Memory, devices: c.Devices}
	}
	if !n.managesMemory(p) {
		q.memory = nil
	}
	return q
}

// walks yields, for each list of hints for q, the number of NUMA nodes whose masks the manager walks.
func (n *Node) walks(q *question) iter.Seq[int] {
	return func(yield func(nodes int) bool) {
		if q.cpus > 0 && !yield(len(n.cpus.nodes)) {
			return
		}
		for range q.memory {
			if !yield(n.nodes) {
				return
			}
		}
		for _, ask := range q.devices {
			if i, known := n.kindOf(ask.Name); known && n.kinds[i].hosts != 0 && !yield(n.kinds[i].walked.Len()) {
				return
			}
		}
	}
}

// lists returns the hints of all managers for q, in the kubelet's order.
func (a *admission) lists(q *question) []hint.Named {
	named := slices.Grow(a.room.named, len(q.devices)+1+max(len(q.memory), 1))
	for _, ask := range q.devices {
		if i, known := a.node.kindOf(ask.Name); known {
			named = append(named, hint.Named{Resource: ask.Name, List: a.deviceList(q, i, ask)})
		}
	}
	if q.container == nil {
		named = append(named, hint.Named{Resource: cpuName, List: a.cpus.podHints()})
	} else {
		named = append(named, hint.Named{Resource: cpuName, List: a.cpus.hints(q.container)})
	}
	return a.memoryLists(named, q)
}

// breadth is which hints a merge reads.
type breadth bool

// Breadths. With oneNode wider masks are read only where no mask of one node has what is asked.
const (
	anyNodes breadth = false
	oneNode  breadth = true
)

// room is the memory of the lists of one admission. A merge that no watch sees uses that of the one before.
type room struct {
	enough breadth // of the hints
	// hints are those of the merge under way, list behind list. named are its lists.
	hints hint.List
	named []hint.Named
}

// list lists the masks of walked nodes that have what is asked, and returns the size of the preferred ones: of the
// smallest that would have it with all its units free, of all nodes when none would. The list is not nil. If masks of
// one node are enough, wider ones are not walked.
func (r *room) list(walked topo.NodeSet, capable, has func(topo.NodeSet) bool) (hint.List, int) {
	least, most := walked.Len(), 1<<min(walked.Len(), 8)
	if r.enough == oneNode {
		most = walked.Len()
	}
	if cap(r.hints)-len(r.hints) < most { // the lists before keep theirs
		r.hints = make(hint.List, 0, 4*most)
	}
	list := r.hints[len(r.hints):]
	for m := range walked.AllSubsets() {
		if r.enough == oneNode && m.Len() > 1 && len(list) > 0 {
			break
		}
		if m.Len() < least && capable(m) {
			least = m.Len()
		}
		if has(m) {
			list = append(list, hint.Hint{Mask: m})
		}
	}
	for i := range list {
		list[i].Preferred = list[i].Mask.Len() == least
	}
	if end := len(r.hints) + len(list); end <= cap(r.hints) {
		r.hints = r.hints[:end]
	}
	return slices.Clip(list), least
}

// deviceList returns the hints of the device manager for an amount of one kind. Devices that the container has already
// decide; else free ones and those that init containers leave.
func (a *admission) deviceList(q *question, at int, ask Amount) hint.List {
	k := &a.node.kinds[at]
	if has := a.held(q, k); has != nil {
		return a.devices.keep(k, has, ask.N)
	}
	reuse := a.devices.reuse[k.first:k.last]
	if q.container == nil {
		reuse = make([]int, k.last-k.first)
	}
	return a.devices.hints(k, a.devices.available(k), reuse, ask.N)
}

// held counts by set what the container or pod has of a kind from an earlier admission; nil for nothing.
func (a *admission) held(q *question, k *kind) []int {
	if a.own == nil {
		return nil
	}
	has := make([]int, k.last-k.first)
	if q.container == nil {
		i, _ := a.start.find(a.pod.UID)
		copy(has, a.start.held[i].devices[k.first:k.last])
	} else {
		for _, d := range a.own.Find(q.container.Name).devicesOf(k.resource) {
			set, _ := a.node.setOf(d.Resource, d.Nodes)
			has[set-k.first] += d.Count
		}
	}
	if !anyAbove0(has) {
		return nil
	}
	return has
}

// memoryLists appends the memory manager's list once for each type that is asked for: the kubelet merges each.
func (a *admission) memoryLists(named []hint.Named, q *question) []hint.Named {
	if q.memory == nil {
		return append(named, hint.Named{Resource: memoryName})
	}
	if blocks := a.blocks(q); blocks != nil {
		return append(named, keepMemory(blocks, q.memory)...)
	}
	list := a.memory.hints(q.memory)
	for _, ask := range q.memory {
		named = append(named, hint.Named{Resource: ask.Name, List: list})
	}
	return named
}

const (
	cpuName    = "cpu"
	memoryName = "memory"
)

// blocks returns the memory that the container, or the pod's first container with memory, has from an earlier
// admission.
func (a *admission) blocks(q *question) []Block {
	for i := range a.pod.Containers {
		name := a.pod.Containers[i].Name
		if q.container != nil && q.container.Name != name {
			continue
		}
		if g := a.own.Find(name); g != nil && len(g.Memory) > 0 {
			return g.Memory
		}
	}
	return nil
}

// keepMemory returns the hints for memory that a pod has already: one for each block, if the blocks are exactly what is
// asked. Otherwise the memory manager makes no hints.
func keepMemory(blocks []Block, ask []Amount) []hint.Named {
	named := make([]hint.Named, len(ask))
	for i := range ask {
		named[i] = hint.Named{Resource: ask[i].Name, List: hint.List{}}
	}
	if len(blocks) != len(ask) {
		return []hint.Named{{Resource: memoryName}}
	}
	for _, b := range blocks {
		i := slices.Index(ask, Amount{b.Type, b.Bytes})
		if i < 0 {
			return []hint.Named{{Resource: memoryName}}
		}
		named[i].List = append(named[i].List, hint.Hint{Mask: b.Nodes, Preferred: true})
	}
	return named
}

// affinity returns why the merge of q is refused, which lists answer.
func (a *admission) affinity(q *question, lists []hint.Named) why.Reason {
	r := why.Reason{Code: why.KubeletTopologyAffinity}
	resource, cause := blame(a.node.rule.Policy, lists)
	r.Extra = int64(cause)
	switch resource {
	case "":
	case cpuName:
		r.Resource, r.Unit, r.Asked = why.CPU, why.CPUs, int64(q.cpus)
	default:
		if asked, known := amountOf(q.devices, resource); known {
			r.Unit, r.Asked = why.Count, asked
		} else {
			r.Resource, r.Unit = why.Memory, why.Bytes
			r.Asked, _ = amountOf(q.memory, resource)
		}
	}
	return r
}

// blame returns why lists have no common preferred mask, and the resource whose list alone is the cause, "" if no list
// alone is: first a list without hints, then one without a preferred mask.
func blame(policy hint.Policy, lists []hint.Named) (resource string, cause why.AffinityCause) {
	width, cause := 0, why.NoCommonNodes
	for _, l := range lists {
		if l.List == nil {
			continue
		}
		own := 0
		for _, h := range l.List {
			if h.Preferred && (policy != hint.SingleNUMANode || h.Mask.Len() == 1) {
				own = h.Mask.Len()
			}
		}
		switch {
		case len(l.List) == 0:
			return l.Resource, why.NoRoom
		case own == 0 && resource == "":
			resource = l.Resource
		case width != 0 && own != width:
			cause = why.DifferentWidths
		}
		width = own
	}
	switch {
	case resource == "":
		return "", cause
	case policy == hint.SingleNUMANode:
		return resource, why.ManyNodes
	}
	return resource, why.NotNarrow
}
