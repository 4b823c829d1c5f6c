package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestCasesOfKubernetesOwnTests are those by which Kubernetes 1.36 tests its own gangs, in
// test/integration/scheduler/podgroup and …/preemption, where no event comes between. Three are left out: Kubernetes
// evicts nothing for a gang that must be in one domain, and goes by the priority of a PodGroup where its pods have a
// higher one; Tenon evicts in one domain, and by the highest.
func TestCasesOfKubernetesOwnTests(t *testing.T) {
	t.Parallel()
	const filled = "low-1 1 10 n0, low-2 1 10 n0, low-3 1 10 n0"
	high := func(n, cpus int) string {
		var pods []string
		for i := range n {
			pods = append(pods, fmt.Sprintf("high-%d %d 100 pg1", i+1, cpus))
		}
		return strings.Join(pods, ", ")
	}
	gang := func(least int) string { return fmt.Sprintf("{gang: {minCount: %d}}", least) }
	inRack := func(least int) string { return gang(least) + ", schedulingConstraints: {topology: [{key: rack}]}" }
	const basic, whole = "{basic: {}}", ", disruptionMode: PodGroup"
	for name, c := range map[string]struct {
		nodes  string            // CPUs of each, and its rack
		groups map[string]string // policies and more, by name
		more   string
		pods   string // name, CPUs, priority, and where it is, or its PodGroup
		want   string
	}{
		"resources are available": {
			"4",
			map[string]string{"pg1": gang(3)},
			"", high(3, 1),
			"high-1 Scheduled, high-2 Scheduled, high-3 Scheduled",
		},
		"too few pods exist": {
			"4", map[string]string{"pg1": gang(3)}, "", high(2, 1), "high-1 GangNotReady, high-2 GangNotReady",
		},
		"the PodGroup does not exist": {"4", nil, "", high(1, 1), "high-1 GangNotFound"},
		"a pod takes the room": {
			"4",
			map[string]string{"pg1": gang(3)},
			"", "blocker 2 100 n0, " + high(3, 1),
			"blocker Existing, high-1 GangSiblingFailed, high-2 GangSiblingFailed, high-3 GangSiblingFailed",
		},
		"minCount fits, and one more does not": {
			"4",
			map[string]string{"pg1": gang(3)},
			"", "blocker 1 100 n0, " + high(4, 1),
			"blocker Existing, high-1 Scheduled, high-2 Scheduled, high-3 Scheduled, high-4 Unschedulable",
		},
		"two gangs and room for one: that of the first pod": {
			"4",
			map[string]string{"pg1": gang(2), "pg2": gang(3)},
			"",
			"other-1 1 100 pg2, high-1 2 100 pg1, other-2 1 100 pg2, high-2 2 100 pg1, other-3 1 100 pg2",
			"high-1 GangSiblingFailed, high-2 GangSiblingFailed, other-1 Scheduled, other-2 Scheduled, " +
				"other-3 Scheduled",
		},
		"basic: each alone": {
			"4",
			map[string]string{"pg1": basic},
			"", "blocker 2 100 n0, " + high(3, 1),
			"blocker Existing, high-1 Scheduled, high-2 Scheduled, high-3 Unschedulable",
		},
		"full preemption": {
			"3",
			map[string]string{"pg1": gang(3)},
			"", filled + ", " + high(3, 1),
			"high-1 Scheduled, high-2 Scheduled, high-3 Scheduled, low-1 Preempted, low-2 Preempted, low-3 Preempted",
		},
		"full preemption, basic": {
			"3",
			map[string]string{"pg1": basic},
			"", filled + ", " + high(3, 1),
			"high-1 Scheduled, high-2 Scheduled, high-3 Scheduled, low-1 Preempted, low-2 Preempted, low-3 Preempted",
		},
		"partial preemption": {
			"2, 2",
			map[string]string{"pg1": gang(3)},
			"", "low-1 2 10 n0, low-2 1 10 n1, " + high(3, 1),
			"high-1 Scheduled, high-2 Scheduled, high-3 Scheduled, low-1 Preempted, low-2 Existing",
		},
		"partial preemption, basic": {
			"2, 2",
			map[string]string{"pg1": basic},
			"", "low-1 1 10 n0, low-2 2 5 n1, " + high(3, 1),
			"high-1 Scheduled, high-2 Scheduled, high-3 Scheduled, low-1 Existing, low-2 Preempted",
		},
		"a disruption budget is kept": {
			"6",
			map[string]string{"pg1": gang(2)},
			"\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: foo}, spec: {minAvailable: 2, " +
				"selector: {matchLabels: {app: foo}}}}\n---",
			"foo-1 2 10 n0, foo-2 2 10 n0, low-3 2 10 n0, " + high(2, 1),
			"foo-1 Existing, foo-2 Existing, high-1 Scheduled, high-2 Scheduled, low-3 Preempted",
		},
		"preemption on several nodes": {
			"2, 2",
			map[string]string{"pg1": gang(4)},
			"",
			"low-1 1 10 n0, low-2 1 10 n0, low-3 1 10 n1, low-4 1 10 n1, " + high(4, 1),
			"high-1 Scheduled, high-2 Scheduled, high-3 Scheduled, high-4 Scheduled, low-1 Preempted, " +
				"low-2 Preempted, low-3 Preempted, low-4 Preempted",
		},
		"nothing is evicted in vain": {
			"3",
			map[string]string{"pg1": gang(3)},
			"", "mid-1 1 500 n0, low-1 1 10 n0, low-2 1 10 n0, " + high(3, 1),
			"high-1 GangSiblingFailed, high-2 GangSiblingFailed, high-3 GangSiblingFailed, low-1 Existing, " +
				"low-2 Existing, mid-1 Existing",
		},
		"the lowest priorities go": {
			"3",
			map[string]string{"pg1": gang(2)},
			"", "mid-1 1 50 n0, low-1 1 10 n0, low-2 1 10 n0, " + high(2, 1),
			"high-1 Scheduled, high-2 Scheduled, low-1 Preempted, low-2 Preempted, mid-1 Existing",
		},
		"a PodGroup goes whole": {
			"3",
			map[string]string{"pg1": gang(1), "pg2": gang(3) + whole},
			"",
			strings.ReplaceAll(filled, "n0", "n0 pg2") + ", " + high(1, 1),
			"high-1 Scheduled, low-1 Preempted, low-2 Preempted, low-3 Preempted",
		},
		"a basic PodGroup goes whole": {
			"3",
			map[string]string{"pg1": gang(1), "pg2": basic + whole},
			"",
			strings.ReplaceAll(filled, "n0", "n0 pg2") + ", " + high(1, 1),
			"high-1 Scheduled, low-1 Preempted, low-2 Preempted, low-3 Preempted",
		},
		"the PodGroup's priority is too low": {
			"3",
			map[string]string{"pg1": gang(1) + ", priority: 10", "pg2": gang(3) + whole + ", priority: 100"},
			"",
			strings.ReplaceAll(filled, "n0", "n0 pg2") + ", " + high(1, 1),
			"high-1 GangSiblingFailed, low-1 Existing, low-2 Existing, low-3 Existing",
		},
		"one pod of a PodGroup goes": {
			"3",
			map[string]string{"pg1": gang(1)},
			"",
			"low-1 1 30 n0 pg1, low-2 1 20 n0 pg1, low-3 1 10 n0 pg1, high-1 1 100",
			"high-1 Scheduled, low-1 Existing, low-2 Existing, low-3 Preempted",
		},
		"the only rack that has room": {
			"1 r1, 2 r1, 2 r2, 2 r2",
			map[string]string{"pg1": inRack(3)},
			"", "low-1 2 100 n2, " + high(3, 1),
			"high-1 Scheduled n1, high-2 Scheduled n1, high-3 Scheduled n0, low-1 Existing n2",
		},
		"no rack has room": {
			"1 r1, 1 r1, 1 r2, 1 r2",
			map[string]string{"pg1": inRack(3)},
			"", high(3, 1),
			"high-1 GangSiblingFailed, high-2 GangSiblingFailed, high-3 GangSiblingFailed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.more
			for i, node := range strings.Split(c.nodes, ", ") {
				cpus, rack := 0, ""
				_, _ = fmt.Sscan(node, &cpus, &rack)
				in += strings.Replace(cpuNode(fmt.Sprint("n", i), cpus), "labels: {", "labels: {rack: '"+rack+"', ", 1)
			}
			for _, name := range slices.Sorted(maps.Keys(c.groups)) {
				in += nativeGroup("v1alpha2", name, c.groups[name])
			}
			for _, pod := range strings.Split(c.pods, ", ") {
				f, cpus := strings.Fields(pod), 0
				_, _ = fmt.Sscan(f[1], &cpus)
				app, _, _ := strings.Cut(f[0], "-")
				spec := ", priority: " + f[2]
				for _, more := range f[3:] {
					if strings.HasPrefix(more, "pg") {
						spec += own(more)
					} else {
						spec += ", nodeName: " + more
					}
				}
				in += cpuPod(f[0], cpus, ", labels: {app: "+app+"}", spec)
			}
			r, _ := simulate(t, in, "-")
			got := states(r)
			if strings.Contains(c.nodes, "r1") && strings.Contains(c.want, Scheduled) {
				var on []string
				for _, p := range r.Pods {
					on = append(on, p.Name+" "+p.State+" "+p.Node)
				}
				slices.Sort(on)
				got = strings.Join(on, ", ")
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
