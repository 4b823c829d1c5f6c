package place_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// oracle decides as package place should, by looking at every set of CPUs or NUMA nodes of a small machine. It reads
// facts and entries, nothing of the summary.
type oracle struct {
	v      *ledger.View
	f      *ledger.Facts
	m      *topo.Machine
	online uint
	// shared is the LS pool, free what exclusive pods may get of it, isolated what they may get beside it.
	shared, free, isolated uint
	*pact
}

// poolOracle decides about pods of the shared pool, and about promises, on machines of any size.
func poolOracle(v *ledger.View) *oracle {
	return &oracle{v: v, f: v.Facts(), m: v.Machine(), pact: newPact(poolsOf(v), promisesOf(v))}
}

func bitsOf(s cpuset.Set) uint {
	set := uint(0)
	for c := range s.All() {
		set |= 1 << c
	}
	return set
}

func newOracle(v *ledger.View) *oracle {
	o := &oracle{v: v, f: v.Facts(), m: v.Machine()}
	o.online = bitsOf(o.m.Online())
	reserved := uint(0)
	if o.f.Model.Config.CPU.Static {
		reserved = bitsOf(o.f.Model.Config.CPU.Reserved) & o.online
	}
	o.shared = o.online &^ bitsOf(o.f.NodeReserved) &^ bitsOf(o.f.System)
	taken := uint(0)
	if o.f.Model.Config.CPU.StrictReservation {
		o.shared &^= reserved
	}
	ours := map[string]bool{}
	for e := range v.Entries() {
		if e.Role.Binds() {
			cpus, _, _ := o.m.ParseList(e.CPUList)
			taken |= bitsOf(cpus)
		}
		ours[e.UID] = e.CPUList != "" || e.Class == qos.LS || e.Class == qos.BE
	}
	for _, g := range o.f.Given {
		if !ours[g.UID] {
			taken |= bitsOf(g.CPUs)
		}
	}
	o.shared &^= taken
	o.isolated = o.shared & bitsOf(o.f.Isolated) &^ reserved
	o.shared &^= bitsOf(o.f.Isolated)
	o.free = o.shared &^ reserved
	var pools []int64
	for i := range o.m.CPUNodes() {
		pools = append(pools, 1000*int64(bits.OnesCount(o.shared&o.node(i))))
	}
	o.pact = newPact(pools, promisesOf(v))
	return o
}

// core is the online CPUs of a core, node those of a NUMA node.
func (o *oracle) core(core int) uint {
	set := uint(0)
	for _, c := range o.m.CoreCPUs(topo.Core(core)) {
		set |= 1 << c
	}
	return set & o.online
}

func (o *oracle) node(i int) uint { return bitsOf(o.m.NUMACPUs(o.m.CPUNodes()[i])) & o.online }

// bind is what must hold of the CPUs: nothing, whole cores, or one CPU of each core; ok is false for policies that
// contradict each other.
func (o *oracle) bind(r *place.Request) (must place.BindWish, ok bool) {
	if o.m.ThreadsPerCore() == 1 {
		return place.NoWish, true
	}
	var node place.BindWish
	switch {
	case o.f.Bind == ledger.FullPCPUsOnly,
		o.f.Bind == ledger.Unset && o.f.Model.Config.CPU.Static && o.f.Model.Config.CPU.FullPCPUsOnly:
		node = place.WantFullPCPUs
	case o.f.Bind == ledger.SpreadByPCPUs && !o.f.ARM64:
		node = place.WantSpreadByPCPUs
	}
	switch {
	case r.Required == place.WantSpreadByPCPUs && (o.f.ARM64 || node == place.WantFullPCPUs),
		r.Required == place.WantFullPCPUs && node == place.WantSpreadByPCPUs:
		return 0, false
	}
	return max(node, r.Required), true // at most one of them, or both the same
}

// shapely reports whether a set of CPUs is what the bind policy asks for.
func (o *oracle) shapely(set uint, must place.BindWish) bool {
	for core := range o.m.NumCores() {
		cpus := o.core(core)
		switch taken := set & cpus; {
		case must == place.WantFullPCPUs && taken != 0 && taken != cpus,
			must == place.WantSpreadByPCPUs && bits.OnesCount(taken) > 1:
			return false
		}
	}
	return true
}

// wholeCores is those of a set that are on cores of which all online CPUs are in the set.
func (o *oracle) wholeCores(set uint) uint {
	whole := uint(0)
	for core := range o.m.NumCores() {
		if cpus := o.core(core); cpus&set == cpus {
			whole |= cpus
		}
	}
	return whole
}

// touched is the NUMA nodes of a set.
func (o *oracle) touched(set uint) uint {
	nodes := uint(0)
	for i := range o.m.CPUNodes() {
		if set&o.node(i) != 0 {
			nodes |= 1 << i
		}
	}
	return nodes
}

// keepsPromises reports whether pods get as much of their promises when a set leaves the pools.
func (o *oracle) keepsPromises(set uint) bool {
	taken := make([]int, len(o.pools))
	for i := range taken {
		taken[i] = bits.OnesCount(set & o.node(i))
	}
	return o.keepWithout(taken)
}

// subsets calls yield with the subsets of a set with k members until it returns false.
func subsets(set uint, k int, yield func(uint) bool) {
	var members [64]uint
	n := 0
	for ; set != 0; set &= set - 1 {
		members[n] = set & -set
		n++
	}
	var walk func(from, k int, chosen uint) bool
	walk = func(from, k int, chosen uint) bool {
		if k == 0 {
			return yield(chosen)
		}
		for i := from; i+k <= n; i++ {
			if !walk(i+1, k-1, chosen|members[i]) {
				return false
			}
		}
		return true
	}
	walk(0, k, 0)
}

// allowed is the number of NUMA nodes that the topology policy allows: for Restricted what an empty machine needs.
func (o *oracle) allowed(r *place.Request, holds func(nodes uint) bool) int {
	all := len(o.m.CPUNodes())
	switch max(o.f.Topology, r.Topology) {
	case hint.SingleNUMANode:
		return 1
	case hint.Restricted:
		for k := 1; k < all; k++ {
			found := false
			subsets(1<<all-1, k, func(nodes uint) bool {
				found = holds(nodes)
				return !found
			})
			if found {
				return k
			}
		}
	}
	return all
}

func (o *oracle) onlineOf(nodes uint) uint {
	set := uint(0)
	for i := range o.m.CPUNodes() {
		if nodes&(1<<i) != 0 {
			set |= o.node(i)
		}
	}
	return set
}

// quality is what a set of NUMA nodes is chosen by, before the strategy.
type quality struct{ nodes, sockets, distance int }

func (q quality) betterThan(p quality) bool {
	return cmp.Or(cmp.Compare(q.nodes, p.nodes), cmp.Compare(q.sockets, p.sockets),
		cmp.Compare(q.distance, p.distance)) < 0
}

func (o *oracle) qualityOf(nodes uint) quality {
	q := quality{nodes: bits.OnesCount(nodes)}
	sockets := map[topo.Socket]bool{}
	for i, a := range o.m.CPUNodes() {
		for j, b := range o.m.CPUNodes() {
			if nodes&(1<<i) != 0 && nodes&(1<<j) != 0 {
				sockets[o.m.NUMASocket(a)] = true
				if i != j {
					q.distance += o.m.Distance(a, b)
				}
			}
		}
	}
	q.sockets = len(sockets)
	return q
}

// has is what a set of NUMA nodes has of a type of memory: what of it pods leave, or all of it.
func (o *oracle) has(nodes uint, kind why.Resource, minusPods bool) int64 {
	page := map[why.Resource]int64{"memory": 1, "hugepages-2Mi": 2 << 20, "hugepages-1Gi": 1 << 30}[kind]
	total := int64(0)
	for i, n := range o.m.CPUNodes() {
		here := int64(0)
		for _, a := range o.f.Amounts {
			if nodes&(1<<i) != 0 && a.NUMAID == o.m.NUMAID(n) && a.Resource == kind {
				here = a.N / page * page
			}
		}
		for e := range o.v.Entries() {
			for _, a := range e.Amounts {
				if minusPods && a.NUMAID == o.m.NUMAID(n) && a.Resource == kind {
					here -= a.N
				}
			}
		}
		total += max(here, 0) / page * page
	}
	return total
}

// join adds memory to a decision about CPU alone, which is to grant: holds reports whether a set of NUMA nodes has the
// CPU, open are the nodes that may take part, limit is how many of them the policy allows.
func (o *oracle) join(r *place.Request, open uint, limit int, holds func(nodes uint) bool) (code why.Code,
	best quality,
) {
	policy := max(o.f.Topology, r.Topology)
	all := uint(1)<<len(o.m.CPUNodes()) - 1
	var asked []align.Need
	for _, a := range r.Needs {
		known := slices.ContainsFunc(o.f.Amounts, func(m align.Amount) bool { return m.Resource == a.Resource })
		if policy == hint.None || !known {
			continue
		}
		if policy == hint.BestEffort && o.has(open, a.Resource, true) < a.N {
			continue
		}
		asked = append(asked, a)
	}
	for _, a := range asked {
		if policy == hint.Restricted && o.has(all, a.Resource, false) >= a.N &&
			o.allowed(r, func(nodes uint) bool { return o.has(nodes, a.Resource, false) >= a.N }) != limit {
			return why.TopologyMismatch, quality{}
		}
		if o.has(open, a.Resource, true) < a.N {
			return why.InsufficientMemory, quality{}
		}
	}
	var apart quality // of the sets on which r meets no pod of the other kind
	for nodes := uint(1); nodes <= all; nodes++ {
		lacks := func(a align.Need) bool { return o.has(nodes, a.Resource, true) < a.N }
		if nodes&^open != 0 || bits.OnesCount(nodes) > limit || !holds(nodes) || slices.ContainsFunc(asked, lacks) {
			continue
		}
		q := o.qualityOf(nodes)
		if best.nodes == 0 || q.betterThan(best) {
			best = q
		}
		if !o.meetsOtherKind(nodes) && (apart.nodes == 0 || q.betterThan(apart)) {
			apart = q
		}
	}
	switch {
	case best.nodes == 0:
		return why.TopologyPolicy, best
	case policy < hint.Restricted || r.NUMAExclusive == place.ShareNUMANodes:
	case apart.nodes > 0:
		return why.None, apart
	case r.NUMAExclusive == place.RequireNUMAExclusive:
		return why.NUMANodeShared, quality{}
	}
	return why.None, best
}

// meetsOtherKind reports whether on a set of NUMA nodes some pod uses one NUMA node while the set is of several, or the
// other way round.
func (o *oracle) meetsOtherKind(nodes uint) bool {
	for e := range o.v.Entries() {
		if uses := o.uses(&e); uses&nodes != 0 && (bits.OnesCount(uses) == 1) != (bits.OnesCount(nodes) == 1) {
			return true
		}
	}
	return false
}

// uses is the NUMA nodes of an entry: of its CPUs, its shared pools and its memory.
func (o *oracle) uses(e *ledger.Entry) uint {
	uses := uint(0)
	cpus, _, _ := o.m.ParseList(e.CPUList)
	cpus = cpus.Intersect(o.m.Online())
	for i, n := range o.m.CPUNodes() {
		id, here := o.m.NUMAID(n), o.m.NUMACPUs(n)
		if cpus.Overlaps(&here) || slices.Contains(e.NUMAIDs, id) ||
			slices.ContainsFunc(e.Amounts, func(a align.Amount) bool { return a.NUMAID == id }) {
			uses |= 1 << i
		}
	}
	return uses
}

// exclusive decides about exclusive CPUs; best is that of all answers.
func (o *oracle) exclusive(r *place.Request) (code why.Code, best quality) {
	free, isolated := o.free, r.Isolated == place.RequireIsolated
	if isolated {
		free = o.isolated
	}
	must, ok := o.bind(r)
	if !ok {
		return why.BindPolicyConflict, best
	}
	if must == place.WantFullPCPUs && r.CPUs%o.m.ThreadsPerCore() != 0 {
		return why.SMTAlignment, best
	}
	limit := o.allowed(r, func(nodes uint) bool {
		cpus := o.onlineOf(nodes)
		if isolated {
			if cpus &= bitsOf(o.f.Isolated); must == place.WantFullPCPUs {
				cpus = o.wholeCores(cpus)
			}
		}
		if must != place.WantSpreadByPCPUs {
			return bits.OnesCount(cpus) >= r.CPUs
		}
		cores := 0
		for core := range o.m.NumCores() {
			cores += min(bits.OnesCount(o.core(core)&cpus), 1)
		}
		return cores >= r.CPUs
	})
	var some, kept, onFew, keptFew bool
	touched := map[uint]bool{} // the NUMA nodes of acceptable answers
	subsets(free, r.CPUs, func(set uint) bool {
		if !o.shapely(set, must) {
			return true
		}
		keeps, nodes := isolated || o.keepsPromises(set), o.touched(set)
		few := bits.OnesCount(nodes) <= limit
		some, kept, onFew = true, kept || keeps, onFew || few
		if keeps && few {
			keptFew, touched[nodes] = true, true
		}
		return true
	})
	floor := o.f.MinSharedCPUs
	if floor < 0 {
		floor = o.m.ThreadsPerCore()
		cpu := &o.f.Model.Config.CPU
		if reserved := cpu.Reserved.Intersect(o.m.Online()); cpu.Static && !reserved.IsEmpty() {
			floor = reserved.Len()
		}
	}
	switch {
	case !some && isolated:
		return why.InsufficientIsolatedCPU, best
	case !some:
		return why.InsufficientExclusiveCPU, best
	case !kept:
		return why.SharedPoolCommitted, best
	case !isolated && bits.OnesCount(o.shared)-r.CPUs < floor:
		return why.SharedPoolFloor, best
	case !onFew:
		return why.TopologyPolicy, best
	case !keptFew:
		return why.SharedPoolCommitted, best
	}
	return o.join(r, 1<<len(o.m.CPUNodes())-1, limit, func(nodes uint) bool {
		for t := range touched {
			if t&^nodes == 0 {
				return true
			}
		}
		return false
	})
}

// amounts are the numbers of CPUs that NUMA node i can give of a set, as the bind policy wants them.
func (o *oracle) amounts(i int, must place.BindWish, cpus cpuset.Set) []int {
	sums, online := []int{0}, o.m.Online()
	for _, core := range o.m.NUMACores(o.m.CPUNodes()[i]) {
		have, alive := 0, 0
		for _, c := range o.m.CoreCPUs(core) {
			if cpus.Has(int(c)) {
				have++
			}
			if online.Has(int(c)) {
				alive++
			}
		}
		for _, sum := range slices.Clone(sums) {
			for give := 1; give <= have; give++ {
				shapely := must == place.NoWish || must == place.WantFullPCPUs && give == alive ||
					must == place.WantSpreadByPCPUs && give == 1
				if shapely && !slices.Contains(sums, sum+give) {
					sums = append(sums, sum+give)
				}
			}
		}
	}
	return sums
}

// gives finds numbers of CPUs by NUMA node that r may have and that keep all promises; nil when there are none.
func (o *oracle) gives(r *place.Request) []int {
	must, _ := o.bind(r)
	limit := o.allowed(r, func(nodes uint) bool {
		counts := must
		if must == place.WantFullPCPUs {
			counts = place.NoWish
		}
		online := 0
		for i := range o.pools {
			if nodes&(1<<i) != 0 {
				online += slices.Max(o.amounts(i, counts, o.m.Online()))
			}
		}
		return online >= r.CPUs
	})
	taken := make([]int, len(o.pools))
	var walk func(i, left, nodes int) bool
	walk = func(i, left, nodes int) bool {
		if left == 0 || i == len(taken) || nodes == limit {
			return left == 0
		}
		for _, amount := range o.amounts(i, must, o.v.Allocatable()) {
			taken[i] = amount
			if amount <= left && o.keepWithout(taken) && walk(i+1, left-amount, nodes+min(amount, 1)) {
				return true
			}
		}
		taken[i] = 0
		return false
	}
	if !walk(0, r.CPUs, 0) {
		return nil
	}
	return taken
}

// pool decides about the shared pools of NUMA nodes; best is zero for a pod that is not confined.
func (o *oracle) pool(r *place.Request) (code why.Code, best quality) {
	need := r.RequestMilli
	if r.ConstrainedBurst {
		need = max(need, r.LimitMilli)
	}
	if r.Role != qos.SharedPool || need == 0 || !r.ConstrainedBurst &&
		max(o.f.Topology, r.Topology) < hint.Restricted {
		return why.None, best
	}
	cpus := int((need + 999) / 1000)
	holds := func(nodes uint) bool {
		size := int64(0)
		for i, pool := range o.pools {
			if nodes&(1<<i) != 0 {
				size += pool
			}
		}
		return size >= 1000*int64(cpus) && o.promisable(nodes, r.RequestMilli)
	}
	open := uint(0)
	for i, pool := range o.pools {
		if pool > 0 {
			open |= 1 << i
		}
	}
	if !holds(open) {
		return why.SharedPoolTooSmall, best
	}
	limit := o.allowed(r, func(nodes uint) bool {
		online := 0
		for i := range o.pools {
			if nodes&(1<<i) != 0 {
				online += slices.Max(o.amounts(i, place.NoWish, o.m.Online()))
			}
		}
		return online >= cpus
	})
	for k := 1; k <= limit; k++ {
		found := false
		subsets(open, k, func(nodes uint) bool {
			found = holds(nodes)
			return !found
		})
		if found {
			return o.join(r, open, limit, holds)
		}
	}
	return why.TopologyPolicy, best
}

// decide is the whole decision. A preference for isolated CPUs is met where they fit on no more NUMA nodes than others.
func (o *oracle) decide(r *place.Request) (code why.Code, best quality) {
	code, best = o.decideAs(r)
	if r.Isolated == place.PreferIsolated {
		isolated := *r
		isolated.Isolated = place.RequireIsolated
		if c, q := o.decideAs(&isolated); c == why.None && (code != why.None || q.nodes <= best.nodes) {
			return c, q
		}
	}
	return code, best
}

// decideAs is decide without a preference.
func (o *oracle) decideAs(r *place.Request) (code why.Code, best quality) {
	if r.OnPolicyNodes != nil && (o.f.Bind == ledger.FullPCPUsOnly || o.f.Bind == ledger.SpreadByPCPUs) {
		r = r.OnPolicyNodes
	}
	switch {
	case r.CPUs > 0:
		code, best = o.exclusive(r)
	case r.Role.Binds():
		code = why.CPURequestNotInteger
	default:
		code, best = o.pool(r)
	}
	if code != why.None || !o.f.Model.Config.CPU.Static || r.Kubelet.CPUs() == 0 {
		return code, best
	}
	return o.ofKubelet(r.Kubelet), best
}

// ofKubelet asks the kubelet pod after pod: those with reported CPUs have them, whoever they are, and it admits the
// others by UID. Where CPUs are all that it looks at, and cores are alike, that is a count.
func (o *oracle) ofKubelet(pod *kubelet.Pod) why.Code {
	node, _ := kubelet.NewNode(o.m, kubelet.Counting(o.f.Model.Config.CPU), kubelet.Inventory{})
	state, free, pinned := node.Empty(), o.online&^bitsOf(o.f.Model.Config.CPU.Reserved), map[string]cpuset.Set{}
	for _, g := range o.f.Given {
		if !g.CPUs.IsEmpty() {
			pinned[g.UID] = g.CPUs.Union(pinned[g.UID])
			free &^= bitsOf(g.CPUs)
		}
	}
	for uid, cpus := range pinned {
		state = state.With(&kubelet.Pod{UID: uid, Guaranteed: true}, kubelet.Placement{{CPUs: cpus}})
	}
	count := bits.OnesCount(free)
	for e := range o.v.Entries() {
		if _, reported := pinned[e.UID]; reported || e.Guest == nil {
			continue
		}
		if after, _, refusal := state.Admit(e.Guest.Pod); refusal == nil {
			state = after
		}
		if e.Guest.CPUs() <= count {
			count -= e.Guest.CPUs()
		}
	}
	code := why.None
	if _, _, refusal := state.Admit(pod); refusal != nil {
		code = refusal.Reason.Code
	}
	alike := o.m.NumCores()*o.m.ThreadsPerCore() == bits.OnesCount(o.online)
	if alike && !o.f.Model.Config.CPU.FullPCPUsOnly && (code == why.None) != (pod.CPUs() <= count) {
		panic(fmt.Sprintf("%d CPUs are left for %d, and the kubelet says %v", count, pod.CPUs(), code))
	}
	return code
}

// TestTryDecidesAsBruteForceDoes compares code and quality of the NUMA nodes: policies of node and pod, options of the
// kubelet, architecture, reservations, pins, floor, promises to LS pods, memory and distances, all at once. A8 of the
// whole decision.
func TestTryDecidesAsBruteForceDoes(t *testing.T) {
	t.Parallel()
	answers, spread, apart, isolated := map[why.Code]int{}, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		threads := rapid.SampledFrom([]int{1, 2, 2, 4}).Draw(t, "threads")
		sockets := rapid.IntRange(1, 2).Draw(t, "sockets")
		nodes := rapid.IntRange(1, 2).Draw(t, "NUMA nodes per socket")
		most := max(12/(sockets*nodes*threads), 1)
		v := drawViewOf(t, spec(sockets, nodes, rapid.IntRange(1, most).Draw(t, "cores per NUMA node"), threads,
			rapid.SliceOfN(rapid.IntRange(1, 12), 0, 2).Draw(t, "offline")...))
		r := drawRequest(t)
		o := newOracle(v)
		code, best := o.decide(r)
		offer, reason := place.Try(v, r)
		if reason.Code != code {
			t.Fatalf("got %v (%+v), want %v: %+v on %+v", reason.Code, reason, code, r, v.Summary())
		}
		answers[code]++
		even := r.On(v.Facts()).CPUs > 0 && v.Facts().Strategy == cpualloc.DistributeEvenly // row 1 is another then
		if got := o.qualityOf(uint(offer.Nodes)); reason.OK() && !even && got != best {
			t.Fatalf("got %+v, %+v would do: %+v", got, best, offer)
		}
		if reason.OK() && r.Isolated == place.PreferIsolated && offer.CPUs.Overlaps(&v.Facts().Isolated) {
			isolated++
		}
		exclusive := r.NUMAExclusive != place.ShareNUMANodes
		if nodes := uint(offer.Nodes); reason.OK() && exclusive && best.nodes > 0 && !o.meetsOtherKind(nodes) {
			apart++
		}
		if reason.OK() && best.nodes > 1 && len(offer.Entry.Amounts) > 0 {
			spread++
		}
	})
	t.Logf("answers: %v, %d with memory on several NUMA nodes", answers, spread)
	if apart == 0 {
		t.Error("no pod was kept apart from pods of the other kind: the generator is too narrow")
	}
	if isolated == 0 && !testing.Short() {
		t.Error("no pod that prefers isolated CPUs got some: the generator is too narrow")
	}
	if spread == 0 {
		t.Error("no pod had memory on several NUMA nodes: the generator is too narrow")
	}
	for _, code := range []why.Code{
		why.None, why.SMTAlignment, why.BindPolicyConflict, why.TopologyPolicy, why.InsufficientExclusiveCPU,
		why.SharedPoolTooSmall,
		why.SharedPoolCommitted, why.SharedPoolFloor, why.InsufficientKubeletCPU, why.CPURequestNotInteger,
		why.InsufficientMemory, why.TopologyMismatch, why.NUMANodeShared, why.InsufficientIsolatedCPU,
	} {
		if answers[code] == 0 {
			t.Errorf("no case was answered with %v: the generator is too narrow", code)
		}
	}
}
