package fabricated

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// room is what a node in own mode has left for one more pod: computed from the machine, the kubelet's settings and the
// pods that are bound, and searched by trying every set of NUMA nodes and every division of CPUs over them. No code of
// the scheduler takes part.
type room struct {
	nodes   []roomNode
	threads int // of a core
	floor   int // CPUs that the shared pool keeps
	policy  int
	whole   bool // exclusive CPUs are whole cores
	// promised are the requests of pods that are confined to the shared pools of a set of NUMA nodes.
	promised []promise
	// confined and spanning are the NUMA nodes of pods that use one of them, and of pods that use several.
	confined, spanning int
}

// roomNode is one NUMA node, in the order of ids.
type roomNode struct {
	id                 int
	online, pool       int // CPUs
	free, freeWhole    int // CPUs that may become exclusive, and those of them on wholly free cores
	memory, freeMemory int // bytes
}

type promise struct {
	nodes int // a bit for each
	milli int
}

// Topology policies, each stricter than the one before.
const (
	unaligned = iota
	bestEffort
	restricted
	singleNode
)

func policyOf(word string) int {
	return map[string]int{
		"best-effort": bestEffort, "BestEffort": bestEffort, "restricted": restricted, "Restricted": restricted,
		"single-numa-node": singleNode, "SingleNUMANode": singleNode,
	}[word]
}

// newRoom computes what the pods leave.
func newRoom(t testing.TB, m machine.Description, pods []corev1.Pod) room {
	t.Helper()
	k, spec := m.Kubelet, m.Spec()
	reserved := idSet(t, k.CPU.Reserved)
	taken := map[int]bool{}
	for i := range pods {
		if !ended(&pods[i]) {
			maps.Copy(taken, idSet(t, statusOf(t, &pods[i]).CPUSet))
		}
	}
	cores := map[int][]int{}
	for _, c := range spec.CPUs {
		cores[c.Core] = append(cores[c.Core], c.ID)
	}
	r := room{
		threads: threadsOf(m), policy: policyOf(k.Topology.Policy),
		whole: k.CPU.Options["full-pcpus-only"] == "true", floor: len(reserved),
	}
	if r.floor == 0 {
		r.floor = r.threads
	}
	isFree := func(id int) bool { return !taken[id] && !reserved[id] }
	for _, n := range spec.NUMA {
		reservedMemory := k.Memory.Reserved[int32(n.ID)]
		memory := int(n.MemoryBytes - reservedMemory.Memory().Value())
		node := roomNode{id: n.ID, memory: memory, freeMemory: memory}
		for _, c := range spec.CPUs {
			if c.NUMA != n.ID {
				continue
			}
			node.online++
			if !taken[c.ID] && !(reserved[c.ID] && k.CPU.Options["strict-cpu-reservation"] == "true") {
				node.pool++
			}
			if isFree(c.ID) {
				node.free++
				if !slices.ContainsFunc(cores[c.Core], func(id int) bool { return !isFree(id) }) {
					node.freeWhole++
				}
			}
		}
		r.nodes = append(r.nodes, node)
	}
	for i := range pods {
		if !ended(&pods[i]) {
			r.charge(t, &pods[i], spec)
		}
	}
	return r
}

// charge takes off what a bound pod holds beside its CPUs.
func (r *room) charge(t testing.TB, p *corev1.Pod, spec topo.Spec) {
	t.Helper()
	status, uses, pools := statusOf(t, p), 0, 0
	own := idSet(t, status.CPUSet)
	for _, c := range spec.CPUs {
		if own[c.ID] {
			uses |= 1 << r.index(c.NUMA)
		}
	}
	for _, pool := range status.CPUSharedPools {
		pools |= 1 << r.index(int(pool.Node))
	}
	if pools != 0 && len(own) == 0 {
		r.promised = append(r.promised, promise{pools, milliCPU(requestOf(p))})
	}
	for _, n := range status.NUMANodeResources {
		if q, ok := n.Resources[corev1.ResourceMemory]; ok && !q.IsZero() {
			i := r.index(int(n.Node))
			uses |= 1 << i
			r.nodes[i].freeMemory -= int(q.Value())
		}
	}
	r.use(uses | pools)
}

// use notes that a pod uses a set of NUMA nodes.
func (r *room) use(nodes int) {
	if bits.OnesCount(uint(nodes)) > 1 {
		r.spanning |= nodes
	} else {
		r.confined |= nodes
	}
}

func (r *room) index(id int) int {
	return slices.IndexFunc(r.nodes, func(n roomNode) bool { return n.id == id })
}

// claim is what a pod asks of NUMA nodes.
type claim struct {
	cpus  int // of its own
	whole bool
	// milli, where the pod runs on the shared pool, is its request, and pool the CPUs that its pools must have.
	milli, pool int
	memory      int // bytes
	policy      int
	apart       bool // no NUMA node with pods of the other kind
	burst       bool // confined whatever the policy
}

func claimOf(t testing.TB, p *corev1.Pod) claim {
	t.Helper()
	request, limit := requestOf(p), resource.PodLimits(p, resource.PodResourcesOptions{})
	c := claim{memory: int(request.Memory().Value())}
	if text := p.Annotations[annotation.NUMATopologySpecKey]; text != "" {
		spec, _, err := annotation.ParseNUMATopologySpec(text)
		testkit.Check(t, err)
		c.policy, c.apart = policyOf(spec.NUMATopologyPolicy), spec.NUMATopologyPolicy != ""
	}
	var spec annotation.ResourceSpec
	if text := p.Annotations[annotation.ResourceSpecKey]; text != "" {
		var err error
		spec, _, err = annotation.ParseResourceSpec(text)
		testkit.Check(t, err)
	}
	milli := milliCPU(request)
	switch p.Labels[annotation.QoSClass] {
	case "LSE", "LSR":
		c.cpus, c.whole = milli/1000, spec.RequiredCPUBindPolicy == annotation.BindFullPCPUs
		return c
	case "BE":
		return c
	}
	c.milli, c.burst = milli, spec.PreferredCPUBindPolicy == annotation.BindConstrainedBurst
	c.pool = milli
	if c.burst {
		c.pool = max(milli, milliCPU(limit))
	}
	c.pool = (c.pool + 999) / 1000
	return c
}

// trial is one way to place a pod: its NUMA nodes, and how many of its own CPUs are on each.
type trial struct {
	nodes int
	cpus  []int
}

// rule is a condition that a trial must meet.
type rule struct {
	text string
	met  func(trial) bool
}

// waits says why a pod must wait: the first rule that no trial meets together with those before it; "" where some trial
// meets them all.
func (r *room) waits(c claim) string {
	policy := max(r.policy, c.policy)
	binds, confines := c.cpus > 0, c.milli > 0 && (c.burst || policy >= restricted)
	if !binds && !confines {
		return ""
	}
	whole := binds && (c.whole || r.whole) && r.threads > 1
	if whole && c.cpus%r.threads != 0 {
		return fmt.Sprintf("%d CPUs are not whole cores of %d", c.cpus, r.threads)
	}
	spread := len(r.nodes)
	switch policy {
	case singleNode:
		spread = 1
	case restricted:
		spread = r.least(max(c.cpus, c.pool), func(n roomNode) int { return n.online })
		if m := r.least(c.memory, func(n roomNode) int { return n.memory }); c.memory > 0 && m != spread {
			return fmt.Sprintf("restricted: the CPUs need %d NUMA nodes and the memory %d", spread, m)
		}
	}
	rules := r.rules(c, policy, spread)
	last := -1
	r.try(c.cpus, whole, func(x trial) {
		met := 0
		for met < len(rules) && rules[met].met(x) {
			met++
		}
		last = max(last, met)
	})
	switch {
	case last < 0:
		return fmt.Sprintf("%d CPUs (whole cores: %t) are not free", c.cpus, whole)
	case last < len(rules):
		return rules[last].text
	}
	return ""
}

// rules are those of pods with CPUs of their own and of confined pods alike: what a pod does not ask is met.
func (r *room) rules(c claim, policy, spread int) []rule {
	pool := func(n roomNode) int { return n.pool }
	return []rule{
		{
			fmt.Sprintf("fewer than %d CPUs would be left to the shared pool", r.floor),
			func(trial) bool { return c.cpus == 0 || r.sum(-1, pool)-c.cpus >= r.floor },
		},
		{
			fmt.Sprintf("the shared pool has fewer than %d CPUs", c.pool),
			func(x trial) bool { return r.sum(x.nodes, pool) >= c.pool },
		},
		{"the shared pool is promised to other pods", func(x trial) bool { return r.keeps(x, c.milli) }},
		{
			fmt.Sprintf("not on %d NUMA nodes", spread),
			func(x trial) bool { return bits.OnesCount(uint(x.nodes)) <= spread },
		},
		{
			fmt.Sprintf("the %d bytes of memory are not on the same %d NUMA nodes", c.memory, spread),
			func(x trial) bool {
				return policy < restricted || r.sum(x.nodes, func(n roomNode) int { return n.freeMemory }) >= c.memory
			},
		},
		{
			"those NUMA nodes have pods of the other kind",
			func(x trial) bool {
				others := r.spanning
				if bits.OnesCount(uint(x.nodes)) > 1 {
					others = r.confined
				}
				return !c.apart || policy < restricted || x.nodes&others == 0
			},
		},
	}
}

// try calls visit with every set of NUMA nodes and every division of CPUs over all of its nodes.
func (r *room) try(cpus int, whole bool, visit func(trial)) {
	for nodes := 1; nodes < 1<<len(r.nodes); nodes++ {
		x := trial{nodes, make([]int, len(r.nodes))}
		var divide func(i, left int)
		divide = func(i, left int) {
			if i == len(r.nodes) {
				if left == 0 {
					visit(x)
				}
				return
			}
			most, step := r.nodes[i].free, 1
			if whole {
				most, step = r.nodes[i].freeWhole, r.threads
			}
			if nodes&(1<<i) == 0 {
				most = 0
			}
			for x.cpus[i] = 0; x.cpus[i] <= min(most, left); x.cpus[i] += step {
				divide(i+1, left-x.cpus[i])
			}
			x.cpus[i] = 0
		}
		divide(0, cpus)
	}
}

// keeps reports whether every set of NUMA nodes still has what pods that may run nowhere else were promised of it, with
// one of milli more on the trial's nodes: then, and only then, all can have it at once (Hall's theorem).
func (r *room) keeps(x trial, milli int) bool {
	for set := 1; set < 1<<len(r.nodes); set++ {
		left := 0
		for i, n := range r.nodes {
			if set&(1<<i) != 0 {
				left += 1000 * (n.pool - x.cpus[i])
			}
		}
		for _, p := range append([]promise{{x.nodes, milli}}, r.promised...) {
			if p.nodes&^set == 0 {
				left -= p.milli
			}
		}
		if left < 0 {
			return false
		}
	}
	return true
}

// sum adds up an amount over a set of NUMA nodes.
func (r *room) sum(nodes int, amount func(roomNode) int) int {
	total := 0
	for i, n := range r.nodes {
		if nodes&(1<<i) != 0 {
			total += amount(n)
		}
	}
	return total
}

// least is the smallest number of NUMA nodes that have an amount together on an empty machine; all of them where it is
// more than the machine has.
func (r *room) least(amount int, available func(roomNode) int) int {
	least := len(r.nodes)
	for nodes := 1; nodes < 1<<len(r.nodes); nodes++ {
		if r.sum(nodes, available) >= amount {
			least = min(least, bits.OnesCount(uint(nodes)))
		}
	}
	return least
}

func requestOf(p *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(p, resource.PodResourcesOptions{})
}

func milliCPU(list corev1.ResourceList) int { return int(list.Cpu().MilliValue()) }

func statusOf(t testing.TB, p *corev1.Pod) annotation.ResourceStatus {
	t.Helper()
	text := p.Annotations[annotation.ResourceStatusKey]
	if text == "" {
		return annotation.ResourceStatus{}
	}
	status, _, err := annotation.ParseResourceStatus(text)
	testkit.Check(t, err)
	return status
}

func idSet(t testing.TB, list string) map[int]bool {
	t.Helper()
	ids, err := fold.Parse(list)
	testkit.Check(t, err)
	set := map[int]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
