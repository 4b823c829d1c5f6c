package tenancy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// TestEndedInitContainersAreNoMispredictions: 500 pods with init containers and sidecars start, restart and leave under
// the four policies. The memory manager releases an init container's blocks when the next container starts, and no
// report of that contradicts a prediction. A report with a block on a foreign NUMA node always does.
func TestEndedInitContainersAreNoMispredictions(t *testing.T) {
	t.Parallel()
	for _, policy := range []hint.Policy{hint.None, hint.BestEffort, hint.Restricted, hint.SingleNUMANode} {
		r := rand.New(rand.NewPCG(1, uint64(policy)))
		node := memoryNode(t, policy, 2)
		var tenants []*tenancy.Tenant
		var given []tenancy.Grant
		released, foreign := 0, 0
		for i := range 125 {
			gen := int64(i + 1)
			if len(tenants) > 3 { // the oldest pods leave, and the node reports so
				tenants, given = tenants[1:], given[1:]
			}
			state := stateOf(node, gen, given, tenants)
			p := randomPod(r, fmt.Sprintf("p%03d", i))
			_, predicted, refusal := state.Kubelet().Admit(p)
			if refusal != nil {
				continue
			}
			tenants = append(slices.Clip(tenants), tenantOf(node, p, gen, predicted))
			before := stateOf(node, gen, given, tenants)
			// Containers up to started have started. A restart of one that started before releases nothing more.
			started := r.IntN(len(p.Containers) + 1)
			actual := afterStart(p, predicted, started)
			if !actual.Equal(predicted) {
				released++
			}
			given = append(slices.Clip(given), tenancy.Grant{UID: p.UID, Placement: actual})
			for _, c := range stateOf(node, gen+1, given, tenants).Confirmations(before) {
				if c.Difference != 0 || c.ModelError {
					t.Errorf("%v: %s, %d containers started: %v, model error %v; predicted %+v, actual %+v", policy,
						p.UID, started, c.Difference.Kinds(), c.ModelError, predicted, actual)
				}
			}
			moved := slices.Clone(given)
			moved[len(moved)-1].Placement = elsewhere(actual)
			got := stateOf(node, gen+1, moved, tenants).Confirmations(before)
			if len(got) != 1 || got[0].Difference == 0 {
				t.Errorf("%v: %s has memory on a foreign node, and is confirmed as %+v", policy, p.UID, got)
			}
			foreign++
		}
		if released < 20 || foreign < 60 {
			t.Errorf("%v: only %d pods released memory, and %d were given foreign memory", policy, released, foreign)
		}
	}
}

// TestReleasedMemoryLeavesTheModelTrusted: an init container fills NUMA node 0 when the next pod is predicted on node
// 1. The kubelet has released that memory when it admits this pod, and places it on node 0.
func TestReleasedMemoryLeavesTheModelTrusted(t *testing.T) {
	t.Parallel()
	node := memoryNode(t, hint.SingleNUMANode, 2)
	first := &kubelet.Pod{UID: "a", Guaranteed: true, Containers: []kubelet.Container{
		container("init", kubelet.Init, 1, 16), container("app", kubelet.App, 1, 1),
	}}
	second := &kubelet.Pod{UID: "b", Guaranteed: true, Containers: []kubelet.Container{
		container("app", kubelet.App, 1, 4),
	}}
	full, running, refusal := node.Empty().Admit(first)
	if refusal != nil {
		t.Fatalf("the first pod is refused: %+v", refusal)
	}
	ended := afterStart(first, running, 2)
	_, beside, _ := full.Admit(second)
	_, actual, _ := node.Empty().With(first, ended).Admit(second)
	if tenancy.Compare(beside, actual) == 0 {
		t.Fatalf("the second pod gets %+v, whether or not the init container has ended", actual)
	}
	for name, tt := range map[string]struct {
		shown      kubelet.Placement // of the first pod, in the report before the second pod's
		gen        int64             // of the second pod's prediction
		placed     kubelet.Placement // of the second pod
		modelError bool
	}{
		"the init container ran when the pod was predicted":     {running, 2, actual, false},
		"it ended in a report after the prediction":             {ended, 1, actual, false},
		"it ran, and the memory is on a node that it never had": {running, 2, elsewhere(actual), true},
		"it ran, and the memory is less than it released":       {running, 2, half(actual), true},
	} {
		tenants := []*tenancy.Tenant{tenantOf(node, first, 0, running), tenantOf(node, second, tt.gen, beside)}
		before := stateOf(node, 2, []tenancy.Grant{{UID: "a", Placement: tt.shown}}, tenants)
		after := stateOf(node, 3, []tenancy.Grant{
			{UID: "a", Placement: ended}, {UID: "b", Placement: tt.placed},
		}, tenants)
		got := after.Confirmations(before)
		if len(got) != 1 || got[0].Difference == 0 || got[0].ModelError != tt.modelError {
			t.Errorf("%s: %+v, want a difference of the second pod with model error %v", name, got, tt.modelError)
		}
	}
}

// TestAPlacementIsExplainedByWhatAPodHadBetweenTwoReports: the app container of a pod fills NUMA node 0, its init
// containers fill the nodes 2 and 1. So the node of the next pod shows what the pod had when that one was admitted.
func TestAPlacementIsExplainedByWhatAPodHadBetweenTwoReports(t *testing.T) {
	t.Parallel()
	node := memoryNode(t, hint.SingleNUMANode, 4)
	pod := &kubelet.Pod{UID: "a", Guaranteed: true, Containers: []kubelet.Container{
		container("i1", kubelet.Init, 0, 16), container("i2", kubelet.Init, 0, 16),
		container("app", kubelet.App, 1, 16),
	}}
	next := &kubelet.Pod{UID: "b", Guaranteed: true, Containers: []kubelet.Container{
		container("app", kubelet.App, 1, 4),
	}}
	fills := func(name string, numa topo.NUMA) kubelet.Given {
		return kubelet.Given{Container: name, Memory: []kubelet.Block{{Type: "memory", Nodes: 1 << numa, Bytes: 16}}}
	}
	i1, i2, app := fills("i1", 2), fills("i2", 1), fills("app", 0)
	ended := func(name string) kubelet.Given { return kubelet.Given{Container: name} }
	app.CPUs = cpuset.Of(0)
	all, one := kubelet.Placement{i1, i2, app}, kubelet.Placement{ended("i1"), i2, app}
	both := kubelet.Placement{ended("i1"), ended("i2"), app}
	for name, c := range map[string]struct {
		first, last kubelet.Placement // nil: the pod is not there
		explained   [4]bool           // that the next pod is on each NUMA node
	}{
		"it runs":                              {all, all, [4]bool{3: true}},
		"it comes":                             {nil, all, [4]bool{0: true, 3: true}},
		"it leaves":                            {both, nil, [4]bool{0: true, 1: true}},
		"it ends an init container":            {all, one, [4]bool{2: true, 3: true}},
		"it ends the other one":                {one, both, [4]bool{1: true, 2: true}},
		"it ends both":                         {all, both, [4]bool{1: true, 2: true, 3: true}},
		"it ends both, and shows them no more": {all, both[2:], [4]bool{1: true, 2: true, 3: true}},
		"it leaves, and nothing had ended":     {all, nil, [4]bool{0: true, 3: true}},
	} {
		for numa, had := range []kubelet.Placement{nil, both, one, all} {
			_, actual, refusal := node.Empty().With(pod, had).Admit(next)
			if refusal != nil || actual[0].NodesOn(node.Machine()) != 1<<numa {
				t.Fatalf("beside %+v the next pod gets %+v (%+v), want NUMA node %d", had, actual, refusal, numa)
			}
			tenants := []*tenancy.Tenant{bound(node, 0, pod), tenantOf(node, next, 2, elsewhere(actual))}
			given := func(pl kubelet.Placement) (grants []tenancy.Grant) {
				if pl != nil {
					grants = append(grants, tenancy.Grant{UID: pod.UID, Placement: pl})
				}
				return grants
			}
			before := stateOf(node, 2, given(c.first), tenants)
			after := append(given(c.last), tenancy.Grant{UID: next.UID, Placement: actual})
			got := stateOf(node, 3, after, tenants).Confirmations(before)
			got = slices.DeleteFunc(got, func(c tenancy.Confirmation) bool { return c.UID != next.UID })
			if len(got) != 1 || got[0].Difference == 0 || got[0].ModelError == c.explained[numa] {
				t.Errorf("%s: the next pod is on NUMA node %d: %+v, want a difference with model error %t", name, numa,
					got, !c.explained[numa])
			}
		}
	}
}

// TestPodsThatKeepWhatTheyHaveLeaveNothingOpen: that there are many of them excuses no placement.
func TestPodsThatKeepWhatTheyHaveLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	node := memoryNode(t, hint.SingleNUMANode, 2)
	next := &kubelet.Pod{UID: "next", Guaranteed: true, Containers: []kubelet.Container{
		container("app", kubelet.App, 1, 4),
	}}
	var given []tenancy.Grant
	var tenants []*tenancy.Tenant
	for i := range 9 { // with two histories each they would be too many to try
		p := &kubelet.Pod{UID: fmt.Sprint("a", i), Guaranteed: true, Containers: []kubelet.Container{
			container("init", kubelet.Init, 0, 1), container("app", kubelet.App, 1, 0),
		}}
		tenants = append(tenants, bound(node, 0, p))
		given = append(given, tenancy.Grant{UID: p.UID, Placement: kubelet.Placement{
			{Container: "init"}, {Container: "app", CPUs: cpuset.Of(i)}, // the init container has ended
		}})
	}
	before := stateOf(node, 2, given, tenants)
	_, predicted, refusal := before.Kubelet().Admit(next)
	if refusal != nil {
		t.Fatalf("the next pod is refused: %+v", refusal)
	}
	tenants = append(tenants, tenantOf(node, next, 2, predicted))
	given = append(given, tenancy.Grant{UID: next.UID, Placement: elsewhere(predicted)})
	got := stateOf(node, 3, given, tenants).Confirmations(before)
	if len(got) != 1 || !got[0].ModelError {
		t.Errorf("%+v, want a model error", got)
	}
}

// memoryNode has NUMA nodes of 16 CPUs and 16 bytes of memory each, and all managers.
func memoryNode(t *testing.T, policy hint.Policy, nodes int) *kubelet.Node {
	t.Helper()
	model, _ := kubelet.ModelOf("v1.36.3")
	zone := map[string]int64{"memory": 16, "hugepages-2Mi": 16}
	node, reason := kubelet.NewNode(grid.Machine{Sockets: nodes, Cores: 16}.Build(t), kubelet.Config{
		Model: model, CPU: kubelet.CPU{Static: true}, Memory: kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: policy},
	}, kubelet.Inventory{Zones: slices.Repeat([]map[string]int64{zone}, nodes)})
	if !reason.OK() {
		t.Fatalf("NewNode: %+v", reason)
	}
	return node
}

func stateOf(n *kubelet.Node, gen int64, given []tenancy.Grant, tenants []*tenancy.Tenant) *tenancy.State {
	facts := &kubelet.Facts{Node: n, Config: n.Config(), Gen: gen}
	return tenancy.New(tenancy.Report{Facts: facts, Given: given}, tenants)
}

func tenantOf(n *kubelet.Node, p *kubelet.Pod, gen int64, predicted kubelet.Placement) *tenancy.Tenant {
	return tenancy.NewTenant(n.Machine(), p.UID, "ns", p.UID, &tenancy.Guest{
		Pod: p, Prediction: &tenancy.Prediction{Gen: gen, Held: kubelet.HeldOf(n.Machine(), predicted)},
	})
}

func container(name string, role kubelet.Role, cpus int, bytes int64) kubelet.Container {
	return kubelet.Container{
		Name: name, Role: role, CPUs: cpus,
		Memory: []kubelet.Amount{{Name: "hugepages-2Mi", N: bytes}, {Name: "memory", N: bytes}},
	}
}

// randomPod has up to three containers before its app container.
func randomPod(r *rand.Rand, uid string) *kubelet.Pod {
	p := &kubelet.Pod{UID: uid, Guaranteed: true}
	for i := range r.IntN(4) {
		role := []kubelet.Role{kubelet.Init, kubelet.Init, kubelet.Sidecar}[r.IntN(3)]
		p.Containers = append(p.Containers, container(fmt.Sprintf("i%d", i), role, r.IntN(2), 1+r.Int64N(3)))
	}
	p.Containers = append(p.Containers, container("app", kubelet.App, 1, 1+r.Int64N(3)))
	return p
}

// afterStart removes the memory of the init containers before the last one of the first n containers, which have
// started, as the memory manager's AddContainer does. A container without CPUs and memory is then not reported.
func afterStart(p *kubelet.Pod, placement kubelet.Placement, n int) kubelet.Placement {
	var out kubelet.Placement
	for _, g := range placement {
		if i := p.Index(g.Container); i < n-1 && p.Containers[i].Role == kubelet.Init {
			if g.Memory = nil; g.CPUs.IsEmpty() {
				continue
			}
		}
		out = append(out, g)
	}
	return out
}

// half halves the memory of the app container.
func half(placement kubelet.Placement) kubelet.Placement {
	out := slices.Clone(placement)
	g := out.Find("app")
	g.Memory = slices.Clone(g.Memory)
	for i := range g.Memory {
		g.Memory[i].Bytes /= 2
	}
	return out
}

// elsewhere moves the memory of the app container, which every pod has, to the NUMA nodes that it is not on; memory of
// both nodes is moved to the first.
func elsewhere(placement kubelet.Placement) kubelet.Placement {
	out := slices.Clone(placement)
	g := out.Find("app")
	g.Memory = slices.Clone(g.Memory)
	for i := range g.Memory {
		if g.Memory[i].Nodes ^= topo.FirstNodes(2); g.Memory[i].Nodes == 0 {
			g.Memory[i].Nodes = 1
		}
	}
	return out
}
