package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
)

// zoneNode is cpuNode in a zone.
func zoneNode(name string, cpus int, zone string) string {
	return strings.Replace(cpuNode(name, cpus), "labels: {", "labels: {zone: "+zone+", ", 1)
}

// affineTo is what a pod's spec says that must be in the zone of a pod with this label.
func affineTo(label string) string {
	return ", affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, " +
		"labelSelector: {matchLabels: {" + label + "}}}]}}"
}

// TestAGangIsTriedInTheZonesOfItsPodAffinity: zone a has two nodes of 4 CPUs, and zone b three.
func TestAGangIsTriedInTheZonesOfItsPodAffinity(t *testing.T) {
	zones := ""
	for i, zone := range []string{"a", "a", "b", "b", "b"} {
		zones += zoneNode(fmt.Sprint("n", i), 4, zone)
	}
	labeled := func(name, label, spec string, least int) string {
		return cpuPod(name, 4, says("g", least)+", labels: {"+label+"}", spec)
	}
	together := func(n int) (in string) {
		for i := range n {
			in += labeled(fmt.Sprint("p", i), "app: g", affineTo("app: g"), n)
		}
		return in
	}
	for name, c := range map[string]struct{ in, want string }{
		"members with affinity to each other": {together(3), "p0 Scheduled, p1 Scheduled, p2 Scheduled"},
		"members with affinity to one leader": {
			labeled("p0", "role: leader", "", 3) + labeled("p1", "role: worker", affineTo("role: leader"), 3) +
				labeled("p2", "role: worker", affineTo("role: leader"), 3),
			"p0 Scheduled, p1 Scheduled, p2 Scheduled",
		},
		"members with affinity to leaders in two zones": {
			labeled("p0", "role: leader", ", nodeSelector: {zone: a}", 5) +
				labeled("p1", "role: leader", ", nodeSelector: {zone: b}", 5) +
				labeled("p2", "role: worker", affineTo("role: leader"), 5) +
				labeled("p3", "role: worker", affineTo("role: leader"), 5) +
				labeled("p4", "role: worker", affineTo("role: leader"), 5),
			"p0 Scheduled, p1 Scheduled, p2 Scheduled, p3 Scheduled, p4 Scheduled",
		},
		"two of three are enough": {
			cpuPod("l0", 4, "", ", nodeName: n2, priority: 9") + cpuPod("l1", 4, "", ", nodeName: n3, priority: 9") +
				labeled("p0", "app: g", affineTo("app: g"), 2) + labeled("p1", "app: g", affineTo("app: g"), 2) +
				labeled("p2", "app: g", affineTo("app: g"), 2),
			"l0 Existing, l1 Existing, p0 Scheduled, p1 Scheduled, p2 Unschedulable",
		},
		"pods that run in both zones": {
			cpuPod("l0", 1, ", labels: {app: g}", ", nodeName: n0") +
				cpuPod("l1", 1, ", labels: {app: g}", ", nodeName: n2") +
				strings.ReplaceAll(together(5), "cpu: 4", "cpu: 3"),
			"l0 Existing, l1 Existing, p0 Scheduled, p1 Scheduled, p2 Scheduled, p3 Scheduled, p4 Scheduled",
		},
		"a pod that runs in the small zone": {
			cpuPod("l0", 0, ", labels: {app: g}", ", nodeName: n0") + together(3),
			"l0 Existing, p0 GangSiblingFailed, p1 GangSiblingFailed, p2 GangSiblingFailed",
		},
		"a pod of another namespace that runs in the small zone": {
			"\n{apiVersion: v1, kind: Namespace, metadata: {name: t}}\n---" +
				cpuPod("l0", 0, ", namespace: t, labels: {app: g}", ", nodeName: n0") + together(3),
			"l0 Existing, p0 Scheduled, p1 Scheduled, p2 Scheduled",
		},
		"a pod of a namespace that is selected": {
			"\n{apiVersion: v1, kind: Namespace, metadata: {name: t, labels: {team: x}}}\n---" +
				cpuPod("l0", 0, ", namespace: t, labels: {app: g}", ", nodeName: n0") +
				strings.ReplaceAll(together(3), "topologyKey: zone,",
					"topologyKey: zone, namespaceSelector: {matchLabels: {team: x}},"),
			"l0 Existing, p0 GangSiblingFailed, p1 GangSiblingFailed, p2 GangSiblingFailed",
		},
		"victims in the zone with enough nodes": {
			cpuPod("l0", 1, "", ", nodeName: n2, priority: 0") +
				strings.ReplaceAll(together(3), "affinity: {", "priority: 10, affinity: {"),
			"l0 Preempted, p0 Scheduled, p1 Scheduled, p2 Scheduled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, zones+c.in, "-")
			if got := states(r); got != c.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, r.Pods)
			}
		})
	}
	r, _ := simulate(t, zones+together(4), "-")
	const text = "in one domain of label zone: tried 1 of 2, the others have too little room, most fit in b"
	if p := r.Pods[0]; p.Reasons[0].Code != why.GangSiblingFailed || !strings.Contains(p.Reasons[0].Message, text) {
		t.Errorf("got %+v, want %s", p.Reasons, text)
	}
}

// TestAGangWithAffinityToItselfStartsInAZoneThatHasTheRoom compares with brute force: gangs of members of different
// sizes, in up to four zones of up to three nodes.
func TestAGangWithAffinityToItselfStartsInAZoneThatHasTheRoom(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 55))
	fitting := 0
	for range 80 {
		var free [][]int
		var members []int
		in := ""
		for z := range 2 + r.IntN(3) {
			free = append(free, nil)
			for n := range 1 + r.IntN(3) {
				free[z] = append(free[z], 2+r.IntN(5))
				in += zoneNode(fmt.Sprintf("n%d-%d", z, n), free[z][n], fmt.Sprint("z", z))
			}
		}
		for range 2 + r.IntN(4) {
			members = append(members, 1+r.IntN(4))
		}
		for m, cpus := range members {
			in += cpuPod(fmt.Sprint("p", m), cpus, says("g", len(members))+", labels: {app: g}", affineTo("app: g"))
		}
		var fits func(free []int, m int) bool
		fits = func(free []int, m int) bool {
			for n := range free {
				if m < len(members) && free[n] >= members[m] {
					free[n] -= members[m]
					found := fits(free, m+1)
					if free[n] += members[m]; found {
						return true
					}
				}
			}
			return m == len(members)
		}
		want := slices.ContainsFunc(free, func(zone []int) bool { return fits(zone, 0) })
		result, _ := simulate(t, in, "-")
		for _, p := range result.Pods {
			if got := p.State == Scheduled; got != want {
				t.Fatalf("%s is %s; the gang fits: %v; members %v, zones %v", p.Name, p.State, want, members, free)
			}
		}
		if want {
			fitting++
		}
	}
	if fitting < 20 || fitting > 70 {
		t.Errorf("%d of 80 gangs fit", fitting)
	}
}
