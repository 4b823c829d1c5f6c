package kubelet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// view is all that can be seen of a state.
type view struct {
	Usage   []kubelet.Usage
	Devices []kubelet.DeviceUsage
	Free    cpuset.Set
	Pods    map[string]kubelet.Placement
}

func viewOf(s *kubelet.State) view {
	v := view{Devices: s.Devices(), Free: s.FreeCPUs(), Pods: map[string]kubelet.Placement{}}
	for i := range s.Node().Machine().NumNUMA() {
		v.Usage = append(v.Usage, s.Usage(topo.NUMA(i)))
	}
	for uid, placement := range s.Placements() {
		v.Pods[uid] = placement
	}
	return v
}

var sameSets = cmp.Comparer(func(a, b cpuset.Set) bool { return a == b })

// TestFitsIsTheVerdictOfAdmit compares the counters with the admission, and both with the explanation of it.
func TestFitsIsTheVerdictOfAdmit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		fits := w.state.Fits(p)
		_, placement, refusal := w.state.Admit(p)
		switch {
		case fits.OK() != (refusal == nil):
			t.Fatalf("Fits %+v, Admit %+v", fits, refusal)
		case refusal != nil && (fits.Code != refusal.Reason.Code || !rejects(fits.Code)):
			t.Fatalf("Fits %+v, Admit %+v", fits, refusal)
		case refusal != nil && fits.Extra != refusal.Reason.Extra:
			t.Fatalf("other cause: Fits %+v, Admit %+v", fits, refusal)
		}
		explained := w.state.Explain(p)
		if diff := cmp.Diff(explained.Refusal, refusal); diff != "" {
			t.Fatalf("Explain against Admit (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(explained.Placement, placement, sameSets); diff != "" {
			t.Fatalf("Explain against Admit (-want +got):\n%s", diff)
		}
	})
}

// TestFitsGoesFromContainerToContainer for pods of several app containers, which counters follow as far as they can.
func TestFitsGoesFromContainerToContainer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t}
		nodes := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "nodes")
		c := static(hint.Policy(1 + w.upTo(2, "policy")))
		c.Model, c.Memory.Static = model(rapid.IntRange(35, 37).Draw(t, "minor")), w.flip("memory")
		inv := kubelet.Inventory{Zones: memoryZones(nodes, 10)}
		for i := range nodes {
			inv.Devices = append(inv.Devices, devices(gpu, 1+w.upTo(2, "GPUs"), i)...)
		}
		if w.flip("devices elsewhere") {
			inv.Devices = append(inv.Devices, kubelet.DeviceSet{
				Resource: gpu, Nodes: topo.NodeSet(w.upTo(1<<nodes-1, "on")), Registered: 1, Healthy: 1,
			})
		}
		inv.Devices = append(inv.Devices, kubelet.DeviceSet{Resource: "example.com/any", Registered: 4, Healthy: 4})
		m := even(t, nodes, 8)
		s := node(t, m, c, inv).Empty()
		for i := range 4 {
			p := pod(fmt.Sprint("pod-", i))
			for j := range 2 + w.upTo(2, "containers") {
				own := app(fmt.Sprint("c", j), w.upTo(3, "CPUs"), int64(1+w.upTo(4, "bytes")))
				if n := w.upTo(2, "any"); n > 0 {
					own = and(own, "example.com/any", int64(n))
				}
				if n := w.upTo(2, "GPUs of it"); n > 0 {
					own = and(own, gpu, int64(n))
				}
				p.Containers = append(p.Containers, own)
			}
			fits := s.Fits(p)
			next, _, refusal := s.Admit(p)
			if fits.OK() != (refusal == nil) ||
				refusal != nil && (fits.Code != refusal.Reason.Code || fits.Extra != refusal.Reason.Extra) {
				t.Fatalf("%+v: Fits %+v, Admit %+v", p, fits, refusal)
			}
			s = next
		}
	})
}

// TestCountersAndListsMergeAlike: what Fits counts for a merge is what the lists of the admission come to.
func TestCountersAndListsMergeAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		steps := w.state.Explain(p).Steps
		if len(steps) == 0 || steps[0].Lists == nil {
			return
		}
		got, candidates, counted := w.state.CountMerge(p, steps[0].Container)
		want := uint64(1)
		for _, l := range steps[0].Lists {
			want *= uint64(max(len(l.List), 1))
		}
		if counted && candidates != want {
			t.Fatalf("counted %d combinations, lists have %d\n%+v", candidates, want, steps[0].Lists)
		}
		if want := steps[0].Table.Answer; counted && (got.Admitted != want.Admitted || want.Admitted && got != want) {
			t.Fatalf("counted %+v, lists come to %+v\n%+v", got, want, steps[0].Lists)
		}
	})
}

func ruleOf(n *kubelet.Node) *hint.Rule {
	c, m := n.Config().Topology, n.Machine()
	r := &hint.Rule{Policy: c.Policy, Nodes: m.NumNUMA()}
	if c.PreferClosest {
		for i := range m.NumNUMA() {
			var row []int
			for j := range m.NumNUMA() {
				row = append(row, m.Distance(topo.NUMA(i), topo.NUMA(j)))
			}
			r.Distances = append(r.Distances, row)
		}
	}
	return r
}

// TestHintsAreTheirDefinition walks all masks for the first container of a pod on any state.
func TestHintsAreTheirDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		p.Containers = p.Containers[len(p.Containers)-1:]
		explained := w.state.Explain(p)
		if len(explained.Steps) == 0 || explained.Steps[0].Lists == nil {
			return
		}
		for _, got := range explained.Steps[0].Lists {
			want := w.literal(p, got.Resource)
			if diff := cmp.Diff(want, byMask(got.List)); diff != "" {
				t.Fatalf("hints of %s (-want +got):\n%s", got.Resource, diff)
			}
			if got.List != nil && len(got.List) != len(want) {
				t.Fatalf("hints of %s: a mask occurs twice in %v", got.Resource, got.List)
			}
		}
	})
}

// byMask converts a list into a map, nil into nil.
func byMask(l hint.List) map[topo.NodeSet]bool {
	if l == nil {
		return nil
	}
	m := map[topo.NodeSet]bool{}
	for _, h := range l {
		m[h.Mask] = h.Preferred
	}
	return m
}

// literal is the list of one resource for the only container of a new pod.
func (w *world) literal(p *kubelet.Pod, resource string) map[topo.NodeSet]bool {
	c := &p.Containers[0]
	config := w.node.Config()
	managed := p.Guaranteed && (!p.PodLevel || config.Model.Minor == 33)
	switch resource {
	case "cpu":
		if !config.CPU.Static || !managed || c.CPUs == 0 {
			return nil
		}
		return w.literalCPUs(c.CPUs)
	case "memory", "hugepages-2Mi":
		if !config.Memory.Static || !managed {
			return nil
		}
		return w.literalMemory(c.Memory)
	}
	for _, a := range c.Devices {
		if a.Name == resource {
			return w.literalDevices(resource, int(a.N))
		}
	}
	return nil
}

// sift makes hints of masks: those that fit, preferred if as narrow as any with capacity, which no mask wider than
// widest needs to be.
func sift(masks []topo.NodeSet, widest int, capable, fit func(topo.NodeSet) bool) map[topo.NodeSet]bool {
	least := widest
	for _, m := range masks {
		if capable(m) {
			least = min(least, m.Len())
		}
	}
	list := map[topo.NodeSet]bool{}
	for _, m := range masks {
		if fit(m) {
			list[m] = m.Len() == least
		}
	}
	return list
}

func subsets(nodes topo.NodeSet) []topo.NodeSet {
	var masks []topo.NodeSet
	for m := topo.NodeSet(1); m <= nodes; m++ {
		if m.Within(nodes) {
			masks = append(masks, m)
		}
	}
	return masks
}

func (w *world) literalCPUs(n int) map[topo.NodeSet]bool {
	m := w.node.Machine()
	var walked topo.NodeSet
	for _, i := range m.CPUNodes() {
		walked |= 1 << i
	}
	capacity := func(mask topo.NodeSet) int {
		sum := 0
		for i := range m.NumNUMA() {
			if mask.Has(topo.NUMA(i)) {
				cpus := m.NUMACPUs(topo.NUMA(i))
				sum += cpus.Len()
			}
		}
		return sum
	}
	free := func(mask topo.NodeSet) int {
		sum := 0
		for i := range m.NumNUMA() {
			if mask.Has(topo.NUMA(i)) {
				u := w.state.Usage(topo.NUMA(i))
				sum += u.Free.Len()
			}
		}
		return sum
	}
	list := sift(subsets(walked), walked.Len(),
		func(m topo.NodeSet) bool { return capacity(m) >= n }, func(m topo.NodeSet) bool { return free(m) >= n })
	if !w.node.Config().CPU.AlignBySocket {
		return list
	}
	least := walked.Len()
	for _, mask := range subsets(walked) {
		if capacity(mask) >= n {
			least = min(least, mask.Len())
		}
	}
	for mask := range list {
		sockets, all := map[topo.Socket]bool{}, map[topo.Socket]bool{}
		for c := range m.NumCPUs() {
			all[m.SocketOf(topo.CPU(c))] = true
			if mask.Has(m.NUMAOf(topo.CPU(c))) {
				sockets[m.SocketOf(topo.CPU(c))] = true
			}
		}
		if per := walked.Len() / len(all); per > 0 && len(sockets) == (least+per-1)/per {
			list[mask] = true
		}
	}
	return list
}

func (w *world) literalMemory(ask []kubelet.Amount) map[topo.NodeSet]bool {
	nodes := w.node.Machine().NumNUMA()
	sum := func(m topo.NodeSet, amount func(kubelet.Quantity) int64, name string) int64 {
		var total int64
		for i := range nodes {
			for _, q := range w.state.Usage(topo.NUMA(i)).Memory {
				if m.Has(topo.NUMA(i)) && q.Type == name {
					total += amount(q)
				}
			}
		}
		return total
	}
	has := func(m topo.NodeSet, amount func(kubelet.Quantity) int64) bool {
		for _, a := range ask {
			if sum(m, amount, a.Name) < a.N {
				return false
			}
		}
		return true
	}
	// The three families: single nodes outside groups, existing groups, and sets of unassigned nodes.
	family := func(m topo.NodeSet) bool {
		group, unused := false, true
		for i := range nodes {
			if u := w.state.Usage(topo.NUMA(i)); m.Has(topo.NUMA(i)) {
				if m.Len() == 1 {
					return u.Group.Len() == 1
				}
				if u.Assignments > 0 {
					unused = false
					group = u.Group == m
					if !group {
						return false
					}
				}
			}
		}
		return group || unused
	}
	list := sift(subsets(topo.FirstNodes(nodes)), nodes,
		func(m topo.NodeSet) bool { return has(m, func(q kubelet.Quantity) int64 { return q.Allocatable }) },
		func(m topo.NodeSet) bool {
			return family(m) && has(m, func(q kubelet.Quantity) int64 { return q.Allocatable }) &&
				has(m, func(q kubelet.Quantity) int64 { return q.Free })
		})
	if len(list) == 0 {
		return nil
	}
	return list
}

func (w *world) literalDevices(resource string, n int) map[topo.NodeSet]bool {
	var hosts topo.NodeSet
	free := 0
	for _, d := range w.state.Devices() {
		if d.Resource == resource {
			free += d.Free
			if d.Registered > 0 {
				hosts |= d.Nodes
			}
		}
	}
	if hosts == 0 {
		return nil
	}
	if free < n {
		return map[topo.NodeSet]bool{}
	}
	walked := topo.FirstNodes(w.node.Machine().NumNUMA())
	if w.node.Config().Model.Minor >= 36 {
		walked = hosts
	}
	sum := func(m topo.NodeSet, amount func(kubelet.DeviceUsage) int) int {
		total := 0
		for _, d := range w.state.Devices() {
			if d.Resource == resource && d.Nodes&m != 0 {
				total += amount(d)
			}
		}
		return total
	}
	return sift(subsets(walked), walked.Len(),
		func(m topo.NodeSet) bool { return sum(m, func(d kubelet.DeviceUsage) int { return d.Registered }) >= n },
		func(m topo.NodeSet) bool { return sum(m, func(d kubelet.DeviceUsage) int { return d.Free }) >= n })
}

// TestPoliciesAreOrdered: on the hints alone, what single-numa-node admits restricted admits, and best-effort all.
func TestPoliciesAreOrdered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		for _, step := range w.state.Explain(p).Steps {
			var lists []hint.List
			for _, l := range step.Lists {
				lists = append(lists, l.List)
			}
			rule := ruleOf(w.node)
			admitted := func(policy hint.Policy) bool {
				rule.Policy = policy
				return rule.Answer(lists, nil).Admitted
			}
			if !admitted(hint.BestEffort) {
				t.Fatalf("best-effort refuses %+v", step.Lists)
			}
			if admitted(hint.SingleNUMANode) && !admitted(hint.Restricted) {
				t.Fatalf("single-numa-node admits and restricted refuses %+v", step.Lists)
			}
		}
		if w.node.Config().Topology.Policy == hint.BestEffort {
			if fits := w.state.Fits(p); fits.Code == why.KubeletTopologyAffinity {
				t.Fatalf("best-effort refuses a merge: %+v", fits)
			}
		}
	})
}

// TestGivenIsWhatWasFree: sizes are exact, nothing is given twice, nothing reserved, inside the mask first.
func TestGivenIsWhatWasFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		next, placement, refusal := w.state.Admit(p)
		if refusal != nil {
			return
		}
		if len(placement) != len(p.Containers) {
			t.Fatalf("%d containers, %d entries", len(p.Containers), len(placement))
		}
		config := w.node.Config()
		free, managed := w.state.FreeCPUs(), p.Guaranteed && (!p.PodLevel || config.Model.Minor == 33)
		var lasting cpuset.Set
		for i, g := range placement {
			c := p.Containers[i]
			want := 0
			if config.CPU.Static && managed {
				want = c.CPUs
			}
			if uniform(w.node.Machine()) {
				if g.CPUs.Len() != want || !g.CPUs.SubsetOf(&free) || g.CPUs.Overlaps(&config.CPU.Reserved) {
					t.Fatalf("container %s asks for %d of the CPUs %v and gets %v", c.Name, want, free, g.CPUs)
				}
				if c.Role != kubelet.Init && lasting.Overlaps(&g.CPUs) {
					t.Fatalf("container %s gets CPUs %v that another one keeps", c.Name, g.CPUs)
				}
			}
			if c.Role != kubelet.Init {
				lasting.Include(&g.CPUs)
			}
			w.checkDevices(&c, &g)
			if len(g.Memory) > 0 != (managed && config.Memory.Static && len(c.Memory) > 0) {
				t.Fatalf("container %s has the blocks %v", c.Name, g.Memory)
			}
		}
		w.checkMemory(next, placement)
	})
}

// uniform reports whether all cores and sockets are alike: where they are not, the kubelet gives CPUs that it should
// not.
func uniform(m *topo.Machine) bool {
	sockets := make([]int, m.NumSockets())
	for c := range m.NumCores() {
		if len(m.CoreCPUs(topo.Core(c))) != m.ThreadsPerCore() {
			return false
		}
		sockets[m.CoreSocket(topo.Core(c))]++
	}
	return slices.Min(sockets) == slices.Max(sockets)
}

func (w *world) checkDevices(c *kubelet.Container, g *kubelet.Given) {
	for _, kind := range w.kinds {
		var want, got int64
		registered := false
		for _, d := range w.state.Devices() {
			registered = registered || d.Resource == kind
		}
		for _, a := range c.Devices {
			if a.Name == kind && registered {
				want += a.N
			}
		}
		for _, d := range g.Devices {
			if d.Resource == kind {
				got += int64(d.Count)
			}
		}
		if got != want {
			w.Fatalf("container %s asks for %d of %s and gets %d", c.Name, want, kind, got)
		}
	}
	for _, d := range w.state.Devices() {
		for _, own := range g.Devices {
			if own.Resource == d.Resource && own.Nodes == d.Nodes && own.Count > d.Healthy {
				w.Fatalf("container %s gets %d of %d devices", c.Name, own.Count, d.Healthy)
			}
		}
	}
}

// checkMemory: what the pod's blocks sum up to is what left the zones.
func (w *world) checkMemory(next *kubelet.State, placement kubelet.Placement) {
	for _, name := range w.types {
		var blocks, left int64
		for _, g := range placement {
			for _, b := range g.Memory {
				if b.Type == name {
					blocks += b.Bytes
				}
			}
		}
		for i := range w.node.Machine().NumNUMA() {
			was, now := w.state.Usage(topo.NUMA(i)).Memory, next.Usage(topo.NUMA(i)).Memory
			for j := range was {
				if was[j].Type == name {
					left += was[j].Free - now[j].Free
				}
			}
		}
		if blocks != left {
			w.Fatalf("%s: blocks of %d, and %d left the zones", name, blocks, left)
		}
	}
}

// TestAdmitThenRemove gives back all: CPUs and devices one by one, memory in sum over each group.
func TestAdmitThenRemove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		next, _, refusal := w.state.Admit(p)
		if refusal != nil || !uniform(w.node.Machine()) {
			return
		}
		was, now := viewOf(w.state), viewOf(next.Without(p.UID))
		for _, v := range []view{was, now} {
			for i := range v.Usage {
				for j := range v.Usage[i].Memory {
					v.Usage[i].Memory[j].Free = 0
				}
				if v.Usage[i].Assignments == 0 {
					continue
				}
				// A node whose last block came from another set of nodes remains in that group while it has
				// assignments.
				v.Usage[i].Group = 0
			}
		}
		if diff := cmp.Diff(was, now, sameSets); diff != "" {
			t.Fatalf("after admission and removal (-want +got):\n%s", diff)
		}
		for name, sum := range w.sums(w.state) {
			if got := w.sums(next.Without(p.UID))[name]; got != sum {
				t.Fatalf("%s: %d bytes were free, %d are", name, sum, got)
			}
		}
	})
}

func (w *world) sums(s *kubelet.State) map[string]int64 {
	sums := map[string]int64{}
	for i := range w.node.Machine().NumNUMA() {
		for _, q := range s.Usage(topo.NUMA(i)).Memory {
			sums[q.Type] += q.Free
		}
	}
	return sums
}

// TestRefusedPodLeavesNothing but other groups of memory nodes, and another split of what a group has left.
func TestRefusedPodLeavesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		next, placement, refusal := w.state.Admit(w.drawPod())
		if refusal == nil || !uniform(w.node.Machine()) {
			return
		}
		was, now := viewOf(w.state), viewOf(next)
		for _, v := range []view{was, now} {
			for i := range v.Usage {
				v.Usage[i].Memory, v.Usage[i].Group = nil, 0
			}
		}
		if diff := cmp.Diff(was, now, sameSets); diff != "" || placement != nil {
			t.Fatalf("placement %v, and a state that differs (-was +is):\n%s", placement, diff)
		}
		if diff := cmp.Diff(w.sums(w.state), w.sums(next)); diff != "" {
			t.Fatalf("free memory (-was +is):\n%s", diff)
		}
	})
}

// TestReportEqualToPredictionGivesPredictedState: With of a predicted placement equals the state that Admit returned.
func TestReportEqualToPredictionGivesPredictedState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.drawPod()
		next, placement, refusal := w.state.Admit(p)
		if refusal != nil || !uniform(w.node.Machine()) {
			return
		}
		reported := w.state.With(p, placement)
		if diff := cmp.Diff(viewOf(next), viewOf(reported), sameSets); diff != "" {
			t.Fatalf("With against Admit (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(viewOf(reported), viewOf(reported.With(p, placement)), sameSets); diff != "" &&
			!w.node.Config().Memory.Static {
			t.Fatalf("reported twice (-want +got):\n%s", diff)
		}
	})
}

// TestReadmissionKeepsWhatThePodHas, as after a restart of the kubelet, if the kubelet admits it again at all.
func TestReadmissionKeepsWhatThePodHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		if len(w.pods) == 0 {
			return
		}
		p := w.pods[w.upTo(len(w.pods)-1, "again")]
		for i := range p.Containers {
			p.Containers[i].Role = kubelet.App // what init containers lent is gone by then
		}
		next, placement, refusal := w.state.Admit(p)
		if fits := w.state.Fits(p); fits.OK() != (refusal == nil) {
			t.Fatalf("Fits %+v, Admit %+v", fits, refusal)
		}
		if refusal != nil {
			return
		}
		had, _ := w.state.Placement(p.UID)
		for i := range placement {
			if placement[i].CPUs != had[i].CPUs || cmp.Diff(placement[i].Memory, had[i].Memory) != "" ||
				cmp.Diff(placement[i].Devices, had[i].Devices) != "" {
				t.Fatalf("had %+v, has %+v", had[i], placement[i])
			}
		}
		was, now := viewOf(w.state), viewOf(next)
		was.Pods, now.Pods = nil, nil
		if diff := cmp.Diff(was, now, sameSets); diff != "" {
			t.Fatalf("after a second admission (-want +got):\n%s", diff)
		}
	})
}

// TestMoreFreeNeverTakesAHint: a pod less on the node leaves every hint of CPUs and devices that was there.
func TestMoreFreeNeverTakesAHint(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		if len(w.pods) == 0 || !uniform(w.node.Machine()) {
			return
		}
		p := w.drawPod()
		p.Containers = p.Containers[len(p.Containers)-1:]
		full := w.state.Explain(p).Steps
		less := w.state.Without(w.pods[0].UID).Explain(p)
		if len(full) == 0 || less.Refusal != nil && less.Refusal.Reason.Code == why.KubeletWouldHang {
			return // there are no lists: with all their hints the kubelet would merge them for minutes
		}
		empty := less.Steps
		for i, l := range full[0].Lists {
			if l.Resource == "memory" || l.Resource == "hugepages-2Mi" || l.List == nil {
				continue
			}
			more := byMask(empty[0].Lists[i].List)
			for _, h := range l.List {
				if preferred, there := more[h.Mask]; !there || preferred != h.Preferred {
					t.Fatalf("%s: %+v is not among %v", l.Resource, h, more)
				}
			}
		}
	})
}

// TestNothingChangesUnderneath: states are immutable, and equal input gives equal output.
func TestNothingChangesUnderneath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		was := fmt.Sprintf("%+v", viewOf(w.state))
		p := w.drawPod()
		before := fmt.Sprintf("%+v", *p)
		next, placement, refusal := w.state.Admit(p)
		first := fmt.Sprintf("%+v %+v %+v", viewOf(next), placement, refusal)
		w.state.Fits(p)
		w.state.Explain(p)
		if refusal == nil {
			w.state.With(p, placement).Without(p.UID)
			next.Without(p.UID).Admit(p)
		}
		if now := fmt.Sprintf("%+v", viewOf(w.state)); now != was {
			t.Fatalf("the state was\n%s\nand is\n%s", was, now)
		}
		if after := fmt.Sprintf("%+v", *p); after != before {
			t.Fatalf("the pod was\n%s\nand is\n%s", before, after)
		}
		again, placement2, refusal2 := w.state.Admit(p)
		if second := fmt.Sprintf("%+v %+v %+v", viewOf(again), placement2, refusal2); second != first {
			t.Fatalf("first\n%s\nthen\n%s", first, second)
		}
	})
}

// TestNothingPanics: reports and pods of every kind, on machines of every size, leave a state within its bounds.
func TestNothingPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t}
		w.node = w.drawLargeNode()
		w.state = w.node.Empty()
		nodes := w.node.Machine().NumNUMA()
		for range w.upTo(6, "steps") {
			p := w.drawPod()
			switch w.upTo(3, "what") {
			case 0:
				w.state = w.state.With(p, w.drawReport(p))
			case 1:
				w.state = w.state.Without(fmt.Sprintf("pod-%02d", w.upTo(9, "gone")))
			default:
				fits := w.state.Fits(p)
				next, _, refusal := w.state.Admit(p)
				if fits.OK() != (refusal == nil) {
					t.Fatalf("Fits %+v, Admit %+v", fits, refusal)
				}
				w.state = next
			}
		}
		for i := range nodes {
			u := w.state.Usage(topo.NUMA(i))
			for _, q := range u.Memory {
				if q.Free < 0 || q.Free > q.Allocatable {
					t.Fatalf("node %d has %d of %d bytes free", i, q.Free, q.Allocatable)
				}
			}
			if u.Assignments < 0 || !u.Group.Has(topo.NUMA(i)) && u.Group != 0 ||
				u.Assignments == 0 && u.Group.Len() > 1 {
				t.Fatalf("node %d is %+v", i, u)
			}
			if !u.Free.SubsetOf(&u.CPUs) {
				t.Fatalf("node %d has %v of %v free", i, u.Free, u.CPUs)
			}
		}
		for _, d := range w.state.Devices() {
			if d.Free < 0 || d.Free > d.Healthy {
				t.Fatalf("devices %+v", d)
			}
		}
	})
}

// drawLargeNode draws any number of NUMA nodes that masks hold, with sparse ids and devices anywhere.
func (w *world) drawLargeNode() *kubelet.Node {
	nodes := rapid.SampledFrom([]int{1, 2, 5, 9, 10, 31, 64}).Draw(w.T, "nodes")
	var spec topo.Spec
	for i := range nodes {
		spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: i})
		if i > 0 && w.upTo(3, "CPUs") == 0 {
			continue
		}
		for range 4 {
			id := len(spec.CPUs)
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{
				ID: id, Core: id / 2, L3: -1, Socket: i, NUMA: i, Offline: id > 0 && w.upTo(9, "offline") == 0,
			})
		}
	}
	m := grid.Build(w, spec)
	c := kubelet.Config{Model: model(rapid.IntRange(33, 37).Draw(w.T, "minor"))}
	c.Topology = kubelet.Topology{Policy: hint.Policy(w.upTo(3, "policy")), PodScope: w.flip("pod scope"), MaxNodes: 64}
	c.CPU.Static, c.CPU.Reserved, c.Memory.Static = w.flip("static"), cpuset.Of(0), w.flip("static memory")
	w.types, w.kinds = []string{"memory"}, []string{"example.com/gpu"}
	inv := kubelet.Inventory{Zones: memoryZones(nodes, rapid.SampledFrom([]int64{0, 10, 1 << 62}).Draw(w.T, "memory"))}
	for range w.upTo(3, "sets") {
		inv.Devices = append(inv.Devices, kubelet.DeviceSet{
			Resource: "example.com/gpu", Nodes: topo.NodeSet(rapid.Uint64().Draw(w.T, "on")) & topo.FirstNodes(nodes),
			Registered: 2, Healthy: 2,
		})
	}
	n, reason := kubelet.NewNode(m, c, inv)
	if !reason.OK() {
		w.Fatalf("NewNode: %+v", reason)
	}
	return n
}

// drawReport draws what no kubelet would say.
func (w *world) drawReport(p *kubelet.Pod) kubelet.Placement {
	var pl kubelet.Placement
	for i := range w.upTo(3, "entries") {
		g := kubelet.Given{Container: fmt.Sprintf("c%d", i)}
		if i == 0 {
			g.Container = p.Containers[0].Name
		}
		for range w.upTo(3, "reported CPUs") {
			g.CPUs.Add(w.upTo(cpuset.MaxCPUs-1, "CPU"))
		}
		for range w.upTo(2, "blocks") {
			g.Memory = append(g.Memory, kubelet.Block{
				Type:  rapid.SampledFrom([]string{"memory", "", "hugepages-1Gi"}).Draw(w.T, "type"),
				Nodes: topo.NodeSet(rapid.Uint64().Draw(w.T, "of")), Bytes: rapid.Int64().Draw(w.T, "bytes"),
			})
		}
		for range w.upTo(2, "devices") {
			g.Devices = append(g.Devices, kubelet.Devices{
				Resource: rapid.SampledFrom([]string{"example.com/gpu", "x"}).Draw(w.T, "resource"),
				Nodes:    topo.NodeSet(rapid.Uint64().Draw(w.T, "at")), Count: w.upTo(5, "count") - 1,
			})
		}
		pl = append(pl, g)
	}
	return pl
}
