package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// networkNode is a node with so many CPUs in a block of a spine.
func networkNode(name string, cpus int, spine, block string) string {
	labels := fmt.Sprintf("labels: {net/spine: %s, net/block: %s, ", spine, block)
	return strings.Replace(cpuNode(name, cpus), "labels: {", labels, 1)
}

const layers = "\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: ClusterNetworkTopology, metadata: " +
	"{name: default}, spec: {networkTopologySpec: [{topologyLayer: NodeTopologyLayer, parentTopologyLayer: " +
	"BlockLayer}, {topologyLayer: BlockLayer, parentTopologyLayer: SpineLayer, labelKey: [old/block, net/block]}, " +
	"{topologyLayer: SpineLayer, labelKey: [net/spine]}]}}\n---"

// gathers is what a pod says of its gang and of rules, such as BlockLayer MustGather 2.
func gathers(gang string, least int, rules ...string) string {
	var list []string
	for _, r := range rules {
		f := append(strings.Fields(r), "0")
		list = append(list, fmt.Sprintf(`{"layer":"%s","strategy":"%s","podCountMultiple":%s}`, f[0], f[1], f[2]))
	}
	return strings.TrimSuffix(says(gang, least), "}") +
		fmt.Sprintf(`, gang.scheduling.koordinator.sh/network-topology-spec: '{"gatherStrategy":[%s]}'}`,
			strings.Join(list, ","))
}

const inOneBlock = `{"gatherStrategy":[{"layer":"BlockLayer","strategy":"MustGather"}]}`

// nodesOf returns the nodes of pods, by name.
func nodesOf(r Result) string {
	var got []string
	for _, p := range r.Pods {
		if p.State == Scheduled {
			got = append(got, p.Name+" "+p.Node)
		}
	}
	slices.Sort(got)
	return strings.Join(got, ", ")
}

// network is two spines: a has blocks of 2, 3 and 1 nodes, b one of 3 and one of 4; nodes have 4 CPUs.
func network() (nodes string) {
	nodes = layers
	for block, n := range map[string]int{"a1": 2, "a2": 3, "a3": 1, "b1": 3, "b2": 4} {
		for i := range n {
			nodes += networkNode(fmt.Sprintf("%s-%d", block, i), 4, block[:1], block)
		}
	}
	return nodes
}

func members(gangName string, n, cpus int, metadata, spec string) (pods string) {
	for i := range n {
		pods += cpuPod(fmt.Sprint(gangName, i), cpus, metadata, spec)
	}
	return pods
}

// TestGangsAreCloseTogether: in which domains gangs start. Pods l… are on nodes, with priority 0.
func TestGangsAreCloseTogether(t *testing.T) {
	on := func(name, node string, cpus int, more string) string {
		return cpuPod(name, cpus, more, ", nodeName: "+node)
	}
	podGroup := func(version, spec, metadata string) string {
		return fmt.Sprintf("\n{apiVersion: %s, kind: PodGroup, metadata: {name: g%s}, spec: %s}\n---", version,
			metadata, spec)
	}
	rule := `, annotations: {gang.scheduling.koordinator.sh/network-topology-spec: ` +
		`'{"gatherStrategy":[{"layer":"BlockLayer","strategy":"MustGather"}]}'}`
	for name, c := range map[string]struct {
		in   string
		want string // pods and nodes, where a gang is in several nodes of one block: blocks
	}{
		"the smallest block that holds all": {
			members("m", 3, 4, gathers("g", 3, "BlockLayer MustGather"), ""), "m0 a2, m1 a2, m2 a2",
		},
		"not the first block of the name": {
			members("m", 2, 4, gathers("g", 2, "BlockLayer MustGather"), ""), "m0 a1, m1 a1",
		},
		"no block holds five, and none starts": {
			members("m", 5, 4, gathers("g", 5, "BlockLayer MustGather"), ""), "",
		},
		"five in one spine, in as few blocks as hold them": {
			members("m", 5, 4, gathers("g", 5, "SpineLayer MustGather", "BlockLayer PreferGather"), ""),
			"m0 a1, m1 a1, m2 a2, m3 a2, m4 a2",
		},
		"eight only across spines": {
			members("m", 8, 4, gathers("g", 8, "SpineLayer MustGather"), ""), "",
		},
		"eight across spines where that is preferred": {
			members("m", 8, 4, gathers("g", 8, "SpineLayer PreferGather"), ""), "8 pods",
		},
		"one node": {
			members("m", 4, 1, gathers("g", 4, "NodeTopologyLayer MustGather"), ""),
			"m0 a1-0, m1 a1-0, m2 a1-0, m3 a1-0",
		},
		"what runs in the block leaves no room": {
			on("l0", "a1-0", 1, "") + members("m", 2, 4, gathers("g", 2, "BlockLayer MustGather"), ""), "m0 a2, m1 a2",
		},
		"members follow those that run": {
			on("m0", "b2-0", 4, gathers("g", 2, "BlockLayer MustGather")) + on("l0", "b2-1", 4, "") +
				on("l1", "b2-2", 4, "") + cpuPod("m1", 4, gathers("g", 2, "BlockLayer MustGather"), ""), "m1 b2",
		},
		"and wait where none is free": {
			on("m0", "a1-0", 4, gathers("g", 2, "BlockLayer MustGather")) + on("l0", "a1-1", 4, "") +
				cpuPod("m1", 4, gathers("g", 2, "BlockLayer MustGather"), ""), "",
		},
		"a NonStrict gang": {
			members("m", 3, 4, strings.TrimSuffix(gathers("g", 3, "BlockLayer MustGather"), "}")+
				", gang.scheduling.koordinator.sh/mode: NonStrict}", ""), "m0 a2, m1 a2, m2 a2",
		},
		"a NonStrict gang of which a node has two": {
			members("m", 2, 2, strings.TrimSuffix(gathers("g", 2, "BlockLayer MustGather"), "}")+
				", gang.scheduling.koordinator.sh/mode: NonStrict}", ""), "m0 a3, m1 a3",
		},
		"a NonStrict gang that prefers one block": {
			members("m", 3, 4, strings.TrimSuffix(gathers("g", 3, "BlockLayer PreferGather"), "}")+
				", gang.scheduling.koordinator.sh/mode: NonStrict}", ""), "m0 a2, m1 a2, m2 a2",
		},
		"a NonStrict gang that prefers one block, and none has the room": {
			members("m", 5, 4, strings.TrimSuffix(gathers("g", 5, "SpineLayer MustGather", "BlockLayer PreferGather"),
				"}")+", gang.scheduling.koordinator.sh/mode: NonStrict}", ""), "m0 a1, m1 a1, m2 a2, m3 a2, m4 a2",
		},
		"pods in pairs": {
			on("l0", "a1-0", 2, "") + on("l1", "a2-0", 2, "") + on("l2", "a2-1", 2, "") + on("l3", "a3-0", 2, "") +
				on("l4", "b1-0", 2, "") + on("l5", "b1-1", 2, "") + on("l6", "b1-2", 2, "") +
				members("m", 4, 2, gathers("g", 4, "SpineLayer MustGather", "NodeTopologyLayer PreferGather 2"), ""),
			"m0 a1-1, m1 a1-1, m2 a2-2, m3 a2-2",
		},
		"a group of gangs in one block": {
			members("m", 2, 4, strings.TrimSuffix(gathers("g", 2, "BlockLayer MustGather"), "}")+
				`, gang.scheduling.koordinator.sh/groups: '["default/g","default/h"]'}`, "") +
				members("n", 2, 4, strings.TrimSuffix(gathers("h", 2, "BlockLayer MustGather"), "}")+
					`, gang.scheduling.koordinator.sh/groups: '["default/g","default/h"]'}`, ""),
			"m0 b2, m1 b2, n0 b2, n1 b2",
		},
		"a PodGroup of Koordinator": {
			podGroup("scheduling.sigs.k8s.io/v1alpha1", "{minMember: 3}", rule) +
				members("m", 3, 4, ", labels: {pod-group.scheduling.sigs.k8s.io: g}", ""), "m0 a2, m1 a2, m2 a2",
		},
		"a PodGroup of scheduler-plugins": {
			podGroup("scheduling.x-k8s.io/v1alpha1", "{minMember: 3}", rule) +
				members("m", 3, 4, ", labels: {scheduling.x-k8s.io/pod-group: g}", ""), "m0 a2, m1 a2, m2 a2",
		},
		"a PodGroup of Kubernetes, by a label": {
			podGroup("scheduling.k8s.io/v1alpha2", "{schedulingPolicy: {gang: {minCount: 4}}, "+
				"schedulingConstraints: {topology: [{key: net/block}]}}", "") + members("m", 4, 4, "", own("g")),
			"m0 b2, m1 b2, m2 b2, m3 b2",
		},
		"a PodGroup of Kubernetes, by a label that no node has": {
			podGroup("scheduling.k8s.io/v1alpha2", "{schedulingPolicy: {gang: {minCount: 1}}, "+
				"schedulingConstraints: {topology: [{key: rack}]}}", "") + members("m", 1, 1, "", own("g")), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, network()+c.in, "-")
			got := nodesOf(r)
			if !strings.Contains(c.want, "-") { // the nodes of a block are alike
				for _, n := range []string{"-0", "-1", "-2", "-3"} {
					got = strings.ReplaceAll(got, n, "")
				}
			}
			if c.want == "8 pods" && len(strings.Split(got, ",")) == 8 {
				return
			}
			if got != c.want {
				t.Errorf("got %q, want %q\n%+v", got, c.want, r.Pods)
			}
		})
	}
}

// TestADeadlockIsResolvedBesideAGangOfAnotherBlock: gangs b and c hold what each other needs in one block. Whether gang
// a could start, which holds a part of another block, is asked first, and says nothing of the nodes of b and c.
func TestADeadlockIsResolvedBesideAGangOfAnotherBlock(t *testing.T) {
	waits := func(gang string, i, cpus int) string {
		return cpuPod(fmt.Sprint(gang, i), cpus, nonStrict(gathers(gang, 2, "BlockLayer MustGather")), "")
	}
	r, _ := simulate(t, layers+networkNode("n1", 4, "a", "a1")+networkNode("n2", 4, "a", "a2")+waits("a", 0, 3)+
		waits("b", 0, 1)+waits("c", 0, 2)+waits("a", 1, 3)+waits("b", 1, 2)+waits("c", 1, 2), "-")
	if got, want := nodesOf(r), "b0 n2, b1 n2"; got != want {
		t.Errorf("got %q, want %q\n%+v", got, want, r.Pods)
	}
}

// TestAMemberBehindAGateIsNotCounted among those that a domain must have.
func TestAMemberBehindAGateIsNotCounted(t *testing.T) {
	metadata := gathers("g", 6, "BlockLayer MustGather 2")
	r, _ := simulate(t, network()+members("gated", 2, 1, metadata, ", schedulingGates: [{name: example.com/x}]")+
		members("m", 6, 1, metadata, ""), "-")
	if g := r.Gangs[0]; g.Members != 8 || g.Bound != 6 {
		t.Errorf("got %+v: %s", g, states(r))
	}
}

// TestWhyAGangDoesNotFitInADomain: the reason names the layer, how many domains there are, and the best one.
func TestWhyAGangDoesNotFitInADomain(t *testing.T) {
	const label = "\n{apiVersion: scheduling.k8s.io/v1alpha2, kind: PodGroup, metadata: {name: g}, spec: " +
		"{schedulingPolicy: {gang: {minCount: 1}}, schedulingConstraints: {topology: [{key: rack}]}}}\n---"
	for name, c := range map[string]struct {
		in, code, text string
	}{
		"too small": {
			members("m", 5, 4, gathers("g", 5, "BlockLayer MustGather"), ""), "GangSiblingFailed",
			"of gang default/g only 4 of 5 members fit in one domain of layer BlockLayer: tried 1 of 5, the " +
				"others have too little room, most fit in b/b2: pod default/m4 does not: ",
		},
		"not known": {
			members("m", 2, 4, gathers("g", 2, "RackLayer MustGather"), ""), "GangLayerNotFound",
			`gang default/g must be in one domain of layer "RackLayer", which no ClusterNetworkTopology named ` +
				"default defines",
		},
		"no node in any": {
			label + members("m", 1, 4, "", own("g")), "GangSiblingFailed",
			"in one domain of label rack: no node is in any",
		},
		"numbers": {
			members("m", 3, 1, gathers("g", 3, "BlockLayer MustGather 2"), ""), "GangSiblingFailed",
			"in one domain of layer BlockLayer: none of the 5 can have the numbers of members that are asked for",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, network()+c.in, "-")
			for _, p := range r.Pods {
				if len(p.Reasons) == 0 || p.Reasons[0].Code.String() != c.code && p.Name != "m4" && p.Name != "m0" {
					t.Errorf("%s is %s, %+v", p.Name, p.State, p.Reasons)
				}
			}
			if last := stateOf(r, "m0").Reasons; len(last) == 0 || !strings.Contains(last[0].Message, c.text) {
				t.Errorf("got  %+v\nwant %s", last, c.text)
			}
		})
	}
}

// TestSoManyDomainsAreTried: in portions, and each is. Pods are evicted in so many at most; beyond them a gang waits,
// and its reason says so.
func TestSoManyDomainsAreTried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		domains, fits int // how many there are, and in which of them the gang fits
		victims       bool
		says          string // why it waits; empty where it starts
	}{
		"in the first portion":               {domains: 1001, fits: 999},
		"in the second":                      {domains: 1001, fits: 1000},
		"in none":                            {domains: 1001, fits: 1001, says: "tried 1001 of 1001, most fit in "},
		"in the last where pods are evicted": {domains: 65, fits: 63, victims: true},
		"in one behind it":                   {domains: 65, fits: 64, victims: true, says: "tried 1 of 65, "},
	} {
		t.Run(name, func(t *testing.T) {
			in := layers
			for i := range c.domains {
				node := fmt.Sprintf("n%04d", i)
				in += networkNode(node, 4, "s", "b"+node)
				if c.victims {
					in += cpuPod("l"+node, 4, "", ", nodeName: "+node+", priority: 1")
				}
			}
			in += cpuPod("m0", 4, gathers("g", 1, "BlockLayer MustGather"),
				fmt.Sprintf(", priority: 10, nodeSelector: {net/block: bn%04d}", c.fits))
			r, _ := simulate(t, in, "-")
			got := stateOf(r, "m0")
			evicts := strings.Contains(states(r), Preempted)
			if starts := c.says == ""; (got.State == Scheduled) != starts || evicts != (starts && c.victims) {
				t.Errorf("the gang fits in domain %d: %s, %+v", c.fits, got.State, got.Reasons)
			}
			if c.says != "" && (len(got.Reasons) == 0 || !strings.Contains(got.Reasons[0].Message, c.says)) {
				t.Errorf("got  %+v\nwant %s", got.Reasons, c.says)
			}
		})
	}
}

// TestWhyALaterMemberWaits: its reasons count the nodes of other domains.
func TestWhyALaterMemberWaits(t *testing.T) {
	metadata := gathers("g", 1, "BlockLayer MustGather")
	r, _ := simulate(t, network()+cpuPod("m0", 4, metadata, ", nodeName: a1-0")+cpuPod("l0", 3, "", ", nodeName: a1-1")+
		cpuPod("m1", 4, metadata, ""), "-")
	got := map[string]int{}
	for _, reason := range stateOf(r, "m1").Reasons {
		got[reason.Code.String()] = reason.Nodes
	}
	if got["GangOtherDomain"] != 11 || got["InsufficientCPU"] != 2 {
		t.Errorf("got %v, want 11 nodes of other domains, and 2 without room", got)
	}
}

// TestAGangEvictsInOneDomain: the one where the least is lost.
func TestAGangEvictsInOneDomain(t *testing.T) {
	in := network()
	lost := map[string]int{"a1": 1, "a2": 2, "a3": 1, "b1": 1, "b2": 2}
	for block, n := range map[string]int{"a1": 2, "a2": 3, "a3": 1, "b1": 3, "b2": 4} {
		for i := range n {
			in += cpuPod(fmt.Sprintf("l-%s-%d", block, i), 4, "",
				fmt.Sprintf(", nodeName: %s-%d, priority: %d", block, i, lost[block]))
		}
	}
	r, _ := simulate(t, in+members("m", 3, 4, gathers("g", 3, "BlockLayer MustGather"), ", priority: 10"), "-")
	if got := strings.NewReplacer("-0", "", "-1", "", "-2", "").Replace(nodesOf(r)); got != "m0 b1, m1 b1, m2 b1" {
		t.Errorf("got %s, %s", got, states(r))
	}
	r, _ = simulate(t, in+members("m", 5, 4, gathers("g", 5, "BlockLayer MustGather"), ", priority: 10"), "-")
	if got := states(r); strings.Contains(got, "Preempted") || strings.Contains(got, Scheduled) {
		t.Errorf("pods are evicted for a gang that fits in no domain: %s", got)
	}
}

// TestAGangEvictsInAnotherDomainThanItWasTriedIn last: only its room was enough, and only in the other one may it be.
func TestAGangEvictsInAnotherDomainThanItWasTriedIn(t *testing.T) {
	in := layers
	for _, block := range []string{"a", "b"} {
		for i := range 2 {
			name := fmt.Sprint(block, "-", i)
			in += networkNode(name, 4, "s", block)
			if block == "b" {
				in += cpuPod("l-"+name, 4, "", ", nodeName: "+name)
			}
		}
	}
	strict := gathers("g", 2, "BlockLayer MustGather")
	for _, metadata := range []string{strict, nonStrict(strict)} {
		r, _ := simulate(t, in+members("m", 2, 4, metadata, ", priority: 10, nodeSelector: {net/block: b}"), "-")
		if got := strings.NewReplacer("-0", "", "-1", "").Replace(nodesOf(r)); got != "m0 b, m1 b" {
			t.Errorf("got %q, %s, of %s", got, states(r), metadata)
		}
	}
}

// TestAGangIsInOneDomainOrNone is G12 on random clusters: a gang that must be in one block is there whole or not at
// all, and it is not at all only where no block has the room.
func TestAGangIsInOneDomainOrNone(t *testing.T) {
	started, failed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		in, free := layers, map[string]int{} // by block: pods of 2 CPUs
		for i := range rapid.IntRange(1, 6).Draw(rt, "nodes") {
			block := fmt.Sprint("b", rapid.IntRange(0, 2).Draw(rt, "block"))
			cpus := rapid.IntRange(1, 5).Draw(rt, "cpus")
			in += networkNode(fmt.Sprint("n", i), cpus, "s", block)
			used := rapid.IntRange(0, cpus).Draw(rt, "used")
			if used > 0 {
				in += cpuPod(fmt.Sprint("l", i), used, "", fmt.Sprintf(", nodeName: n%d", i))
			}
			free[block] += (cpus - used) / 2
		}
		n := rapid.IntRange(1, 4).Draw(rt, "members")
		least := rapid.IntRange(1, n).Draw(rt, "least")
		in += members("m", n, 2, gathers("g", least, "BlockLayer MustGather"), "")
		r, _ := simulate(t, in, "-")
		blocks, bound := map[string]bool{}, 0
		for _, p := range r.Pods {
			if p.State == Scheduled {
				at := strings.Index(in, "name: "+p.Node+", ")
				block := in[at+strings.Index(in[at:], "net/block: "):]
				blocks[block[len("net/block: "):len("net/block: b0")]] = true
				bound++
			}
		}
		room := 0
		for _, f := range free {
			room = max(room, f)
		}
		if want := room >= least; want != (bound > 0) || bound > 0 && bound != min(room, n) || len(blocks) > 1 {
			rt.Fatalf("%d of %d (min %d) are bound in %v, the largest room is %d\n%s", bound, n, least, blocks,
				room, in)
		}
		if bound > 0 {
			started++
		} else {
			failed++
		}
	})
	if !testing.Short() && (started < 10 || failed < 10) {
		t.Errorf("%d gangs started, %d did not", started, failed)
	}
}

// TestMembersThatFollowEachOtherAreNeighbors: by their index, on random clusters, whatever their names. Ranks of one
// block follow each other, and so do those of one spine.
func TestMembersThatFollowEachOtherAreNeighbors(t *testing.T) {
	several := 0
	rapid.Check(t, func(rt *rapid.T) {
		in, at := layers, map[string][2]string{}
		for i := range rapid.IntRange(2, 6).Draw(rt, "nodes") {
			spine := fmt.Sprint("s", rapid.IntRange(0, 1).Draw(rt, "spine"))
			block := spine + fmt.Sprint("b", rapid.IntRange(0, 1).Draw(rt, "block"))
			at[fmt.Sprint("n", i)] = [2]string{spine, block}
			in += networkNode(fmt.Sprint("n", i), rapid.IntRange(1, 3).Draw(rt, "cpus"), spine, block)
		}
		n := rapid.IntRange(2, 6).Draw(rt, "members")
		ranks := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range n {
				if !yield(i) {
					return
				}
			}
		})).Draw(rt, "ranks")
		says := strings.TrimSuffix(gathers("g", n, "BlockLayer PreferGather", "SpineLayer PreferGather"), "}")
		for i, rank := range ranks {
			in += cpuPod(fmt.Sprint("m", i), 1,
				fmt.Sprintf("%s, gang.scheduling.koordinator.sh/network-topology-index: '%d'}", says, rank), "")
		}
		r, _ := simulate(t, in, "-")
		nodes := make([]string, n)
		for _, p := range r.Pods {
			var i int
			if _, err := fmt.Sscanf(p.Name, "m%d", &i); err != nil {
				rt.Fatal(err)
			}
			nodes[ranks[i]] = p.Node
		}
		if nodes[0] == "" {
			return
		}
		for level := range 2 {
			seen, last := map[string]bool{}, ""
			for _, node := range nodes {
				domain := at[node][level]
				if seen[domain] && domain != last {
					rt.Fatalf("by rank the members are on %v\n%s", nodes, in)
				}
				seen[domain], last = true, domain
			}
			if len(seen) > 1 {
				several++
			}
		}
	})
	if !testing.Short() && several < 10 {
		t.Errorf("%d gangs were in several domains", several)
	}
}

// TestANodeOfADomainGoesWhileItsMembersAreReserved: another one of the domain takes its member in the same round.
func TestANodeOfADomainGoesWhileItsMembersAreReserved(t *testing.T) {
	l := newLive(t, layers+networkNode("n0", 2, "s", "b")+networkNode("n1", 2, "s", "b")+networkNode("n2", 2, "s", "b")+
		networkNode("n3", 64, "s", "c")+networkNode("n4", 64, "s", "c"))
	gone := ""
	watchSteps(l.engine, func(step string, p *corev1.Pod) *fwk.Status {
		switch {
		case step == release:
			t.Errorf("%s is given back", p.Name)
		case step == commit && gone == "":
			gone = l.rounds.Planned(podsOf(l.engine)["a1"])
			removeNode(t, l.engine, gone)
		}
		return nil
	})
	l.gang("a", 2, 2, func(p *corev1.Pod) {
		p.Annotations[annotation.GangNetworkTopology] = inOneBlock
	})
	l.runUntilIdle()
	if on := l.on("a"); gone == "" || len(on) != 2 || on[1].Spec.NodeName != "n2" {
		t.Errorf("node %q has gone; %+v; the gang waits by %+v", gone, on, l.why("a"))
	}
}

func TestALayerThatIsPreferredAndNotKnown(t *testing.T) {
	r, _ := simulate(t, cpuNode("n0", 4)+members("m", 2, 1, gathers("g", 2, "Nowhere PreferGather"), ""), "-")
	if got := nodesOf(r); got != "m0 n0, m1 n0" || r.Gangs[0].State != gang.StatusBound {
		t.Errorf("got %s: %s, %v", got, states(r), r.Gangs)
	}
}

// linkedNode is a node with GPUs ID-0, ID-1, … and links such as 0-1:6.
func linkedNode(name string, gpus int, links ...string) string {
	var list []string
	for _, l := range links {
		var a, b, lanes int
		if _, err := fmt.Sscanf(l, "%d-%d:%d", &a, &b, &lanes); err != nil {
			panic(err)
		}
		list = append(list, fmt.Sprintf(`{"ids":["%s-%d","%s-%d"],"type":"NVLink","count":%d}`, name, a, name, b,
			lanes))
	}
	links = []string{"annotations: {node.tenon.sh/device-links: '{\"links\":[" + strings.Join(list, ",") + "]}', "}
	return strings.Replace(gpuNode(name, 64, gpus), "annotations: {", links[0], 1)
}

// TestGPUsOfAGangAreNextToEachOther: pods of a gang that ask for joint GPUs have them on one node where they fit on
// one, and there the best-linked set together, not each the best-linked pair.
func TestGPUsOfAGangAreNextToEachOther(t *testing.T) {
	quads := []string{"0-1:6"}
	for _, quad := range [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}} {
		for i, a := range quad {
			for _, b := range quad[:i] {
				quads = append(quads, fmt.Sprintf("%d-%d:4", b, a))
			}
		}
	}
	each := func(more string, percents ...int) (pods string) {
		metadata := strings.TrimSuffix(says("g", len(percents)), "}") + more + "}"
		for i, percent := range percents {
			name := fmt.Sprint("m", i)
			if percent == 0 {
				pods += cpuPod(name, 1, metadata, "")
				continue
			}
			pods += strings.Replace(gpuPod(name, 1, percent, ""), "name: "+name, "name: "+name+metadata, 1)
		}
		return pods
	}
	pods := func(n, percent int, more string) string { return each(more, slices.Repeat([]int{percent}, n)...) }
	const joint = `, scheduling.koordinator.sh/device-joint-allocate: '{"deviceTypes":["gpu"]}'`
	const oneByOne = joint + ", gang.scheduling.koordinator.sh/mode: NonStrict"
	for name, c := range map[string]struct {
		in   string
		want []string // with enableJointGPUs
		off  []string // without it; nil for the same
	}{
		"the best-linked four": {
			in:   linkedNode("n0", 8, quads...) + pods(2, 200, joint),
			want: []string{"n0 n0-0,n0-2", "n0 n0-4,n0-6"},
		},
		"whole GPUs without the annotation": {
			in:   linkedNode("n0", 8, quads...) + pods(2, 200, ""),
			want: []string{"n0 n0-0,n0-2", "n0 n0-4,n0-6"},
			off:  []string{"n0 n0-0,n0-1", "n0 n0-2,n0-4"},
		},
		"unequal numbers of whole GPUs without the annotation": {
			in:   linkedNode("n0", 8, quads...) + each("", 200, 100),
			want: []string{"n0 n0-2,n0-4", "n0 n0-6"}, // 0 and 1 remain a pair
			off:  []string{"n0 n0-0,n0-1", "n0 n0-2"},
		},
		"whole GPUs that no node has, without the annotation": {
			in:   linkedNode("n0", 2) + linkedNode("n1", 2) + pods(2, 200, ""),
			want: []string{"n0 n0-0,n0-1", "n1 n1-0,n1-1"},
		},
		"a member without a GPU: each by itself": {
			in:   linkedNode("n0", 8, quads...) + each("", 200, 200, 0),
			want: []string{"n0 ", "n0 n0-0,n0-1", "n0 n0-2,n0-4"},
		},
		"a member with a share of a GPU: each by itself": {
			in:   linkedNode("n0", 8, quads...) + each("", 200, 200, 50),
			want: []string{"n0 n0-0,n0-1", "n0 n0-2,n0-4", "n0 n0-6"},
		},
		"the node with the better links": {
			in:   linkedNode("n0", 4) + linkedNode("n1", 8, quads...) + pods(2, 200, joint),
			want: []string{"n1 n1-0,n1-2", "n1 n1-4,n1-6"},
		},
		"one node of several that are half full": {
			in:   linkedNode("n0", 2) + linkedNode("n1", 2) + linkedNode("n2", 4) + pods(4, 100, joint),
			want: []string{"n2 n2-0", "n2 n2-1", "n2 n2-2", "n2 n2-3"},
		},
		"no node has so many": {
			in:   linkedNode("n0", 2) + linkedNode("n1", 2) + pods(2, 200, joint),
			want: []string{"n0 n0-0,n0-1", "n1 n1-0,n1-1"},
		},
		"one by one: the best-linked four": {
			in:   linkedNode("n0", 8, quads...) + pods(2, 200, oneByOne),
			want: []string{"n0 n0-0,n0-2", "n0 n0-4,n0-6"},
		},
		"one by one: the rest of the four, not the best-linked pair": {
			in: linkedNode("n0", 6, "0-1:4", "0-2:4", "0-3:4", "1-2:4", "1-3:4", "2-3:4", "4-5:6") +
				pods(2, 200, oneByOne),
			want: []string{"n0 n0-0,n0-1", "n0 n0-2,n0-3"},
		},
		"one by one: the node with the better links": {
			in:   linkedNode("n0", 4) + linkedNode("n1", 8, quads...) + pods(2, 200, oneByOne),
			want: []string{"n1 n1-0,n1-2", "n1 n1-4,n1-6"},
		},
		"one by one: one node of several that are half full": {
			in:   linkedNode("n0", 2) + linkedNode("n1", 2) + linkedNode("n2", 4) + pods(4, 100, oneByOne),
			want: []string{"n2 n2-0", "n2 n2-1", "n2 n2-2", "n2 n2-3"},
		},
		"one by one: no node has so many": {
			in:   linkedNode("n0", 2) + linkedNode("n1", 2) + pods(2, 200, oneByOne),
			want: []string{"n0 n0-0,n0-1", "n1 n1-0,n1-1"},
		},
		"one by one: what fits of too many": {
			in:   linkedNode("n0", 2) + linkedNode("n1", 4) + pods(4, 200, oneByOne),
			want: []string{" ", "n0 n0-0,n0-1", "n1 n1-0,n1-1", "n1 n1-2,n1-3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.off == nil {
				c.off = c.want
			}
			for joins, want := range map[bool][]string{true: c.want, false: c.off} {
				r, err := simulated(t, c.in, func(e *engine) {
					e.gangs.Update(func(s *gang.State) (none gang.Effects) {
						if !joins {
							s.JoinWholeGPUs(false)
						}
						return none
					})
				})
				var got []string
				for _, p := range r.Pods {
					got = append(got, at(p))
				}
				if slices.Sort(got); err != nil || !slices.Equal(got, want) {
					t.Errorf("enableJointGPUs %t: got %q, %v, want %q", joins, got, err, want)
				}
			}
		})
	}
}

// TestASetThatWasReleasedIsNotFollowed: members that timed out go where all are better off since.
func TestASetThatWasReleasedIsNotFollowed(t *testing.T) {
	l := newLive(t, linkedNode("n0", 4)+linkedNode("n1", 4, "0-1:6", "1-2:6", "2-3:6", "3-0:6"))
	l.pod("old", 64, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"} })
	l.runUntilIdle()
	together := func(p *corev1.Pod) {
		p.Annotations[annotation.GangMode] = "NonStrict"
		p.Annotations[annotation.GangGroups] = `["default/a","default/b"]`
	}
	l.gang("a", 2, 1, together, func(p *corev1.Pod) {
		p.Annotations[annotation.DeviceJointAllocateKey] = `{"deviceTypes":["gpu"]}`
		r := &p.Spec.Containers[0].Resources
		r.Requests[annotation.ResourceGPU] = resource.MustParse("200")
		r.Limits = r.Requests
	})
	l.gang("b", 1, 1000, together) // never fits: what the others do is seen
	held := func(node string) int { return len(l.core.Cache.Dump().Nodes[node].GetPods()) }
	l.runUntilIdle()
	if n := held("n0"); n != 2 {
		t.Fatalf("%d members hold room on n0, want 2", n)
	}
	late := time.Now().Add(1000 * time.Hour)
	l.gangs.Update(func(s *gang.State) gang.Effects { return s.Expire(late) })
	l.finishDecided(l.ctx)
	if n := held("n0"); n != 0 {
		t.Fatalf("%d members hold room after their time, want 0", n)
	}
	l.end("old")
	l.gangs.Update(func(s *gang.State) gang.Effects { return s.Expire(late.Add(time.Hour)) }) // their rest is over
	l.runUntilIdle()
	if n0, n1 := held("n0"), held("n1"); n0 != 0 || n1 != 2 {
		t.Errorf("%d members hold room on n0 and %d on n1, want both on n1", n0, n1)
	}
}

// TestDomainsWithoutRoomCostNoPlan: members are tried in the one block that may have the room, once for the plan and
// once to be reserved; in the roomiest where none may, until the first that does not fit. Nothing is reserved for it.
func TestDomainsWithoutRoomCostNoPlan(t *testing.T) {
	in := layers
	for i := range 30 {
		in += networkNode(fmt.Sprint("n", i), 4, "s", fmt.Sprint("small", i))
	}
	for i := range 4 {
		in += networkNode(fmt.Sprint("big", i), 4, "s", "big")
	}
	pods := func(n int) string { return members("m", n, 4, gathers("g", n, "BlockLayer MustGather"), "") }
	r, assumed, tried := stepped(t, in+pods(4), func(*engine) {})
	if got := nodesOf(r); got != "m0 big0, m1 big1, m2 big2, m3 big3" || assumed != 4 || tried > 8 {
		t.Errorf("got %s, %d assumed, %d tried, want 4 and at most 8", got, assumed, tried)
	}
	r, assumed, tried = stepped(t, in+pods(5), func(*engine) {})
	if got := nodesOf(r); got != "" || assumed != 0 || tried > 7 { // once more for what gangs of its shape share
		t.Errorf("got %q, %d assumed, %d tried, want none and at most 7", got, assumed, tried)
	}
}

// TestGangsOfGPUsStartInOneClique: nodes a… and b… are in cliques of two and three nodes with 2 GPUs, u… in none.
func TestGangsOfGPUsStartInOneClique(t *testing.T) {
	rack := func(clique string, names ...string) (nodes string) {
		for _, name := range names {
			label := fmt.Sprintf("labels: {nvidia.com/gpu.clique: '%s', net/block: x%s, ", clique, name[1:])
			nodes += strings.Replace(gpuNode(name, 64, 2), "labels: {", label, 1)
		}
		return nodes
	}
	nodes := rack("", "u0", "u1", "u2", "u3") + rack("f.1", "a0", "a1") + rack("f.2", "b0", "b1", "b2")
	pods := func(n int, metadata string) (pods string) {
		for i := range n {
			name := fmt.Sprint("m", i)
			pods += strings.Replace(gpuPod(name, 1, 200, ""), "name: "+name, "name: "+name+metadata, 1)
		}
		return pods
	}
	const blocks = "\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: ClusterNetworkTopology, " +
		"metadata: {name: default}, spec: {networkTopologySpec: [" +
		"{topologyLayer: BlockLayer, labelKey: [net/block]}%s]}}\n---"
	for name, c := range map[string]struct {
		in   string
		want string // the first letters of the nodes
	}{
		"two in the smaller clique":        {pods(2, says("g", 2)), "aa"},
		"three in the larger one":          {pods(3, says("g", 3)), "bbb"},
		"more than all cliques hold":       {pods(6, says("g", 6)), "aabbbu"},
		"must, and fits":                   {pods(3, gathers("g", 3, "GPUCliqueTopologyLayer MustGather")), "bbb"},
		"must, and no clique has the room": {pods(4, gathers("g", 4, "GPUCliqueTopologyLayer MustGather")), ""},
		"blocks across the cliques": {
			fmt.Sprintf(blocks, "") + pods(2, gathers("g", 2, "BlockLayer MustGather")), "bu",
		},
		"cliques in blocks that divide them": {
			fmt.Sprintf(blocks, ", {topologyLayer: GPUCliqueTopologyLayer, parentTopologyLayer: BlockLayer}") +
				pods(2, gathers("g", 2, "GPUCliqueTopologyLayer MustGather")), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, nodes+c.in, "-")
			var on []string
			for _, p := range r.Pods {
				if p.State == Scheduled {
					on = append(on, p.Node[:1])
				}
			}
			slices.Sort(on)
			got := strings.Join(on, "")
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
