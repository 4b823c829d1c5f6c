package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/why"
)

// ending is metadata of a pod that terminates.
const ending = ", deletionTimestamp: '2026-01-02T03:04:05Z', deletionGracePeriodSeconds: 30"

// TestHealthyPodsAreNotEvictedWhereTerminatingPodsFreeEnough: on nodes of 8 CPUs, e… terminate, l… run with priority
// 10, and a… are pending with priority 1000.
func TestHealthyPodsAreNotEvictedWhereTerminatingPodsFreeEnough(t *testing.T) {
	t.Parallel()
	runs := func(name, node string, cpus int, metadata string, priority int) string {
		return cpuPod(name, cpus, metadata, fmt.Sprintf(", nodeName: %s, priority: %d", node, priority))
	}
	asks := func(name string, cpus int, metadata string) string {
		return cpuPod(name, cpus, metadata, ", priority: 1000")
	}
	one, two := cpuNode("n0", 8), cpuNode("n0", 8)+cpuNode("n1", 8)
	in := ", labels: {quota.scheduling.koordinator.sh/name: one}"
	quota := elastic(koordinator, "one", "", "{cpu: 8}", "{cpu: 8}")
	gpus := func(name, minor, metadata, spec string) string {
		allocated := ""
		if minor != "" {
			allocated = `, annotations: {scheduling.koordinator.sh/device-allocated: '{"gpu":[{"minor":` + minor +
				`,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}'}`
		}
		return "\n{apiVersion: v1, kind: Pod, metadata: {name: " + name + metadata + allocated + "}, spec: " +
			"{containers: [{name: c, image: i, resources: {limits: {koordinator.sh/gpu: 100}}}]" + spec + "}}\n---"
	}
	for name, c := range map[string]struct{ in, want string }{
		"one pod, on the same node": {
			one + runs("e0", "n0", 4, ending, 10) + runs("l0", "n0", 4, "", 10) + asks("a0", 4, ""),
			"a0 VictimsTerminating, e0 Existing, l0 Existing",
		},
		"one pod, on another node": {
			two + runs("e0", "n1", 8, ending, 10) + runs("l0", "n0", 8, "", 1) + asks("a0", 8, ""),
			"a0 VictimsTerminating, e0 Existing, l0 Existing",
		},
		"pods of higher priority terminate": {
			one + runs("e0", "n0", 4, ending, 2000) + runs("l0", "n0", 4, "", 10) + asks("a0", 4, ""),
			"a0 VictimsTerminating, e0 Existing, l0 Existing",
		},
		"a gang": {
			two + runs("e0", "n0", 4, ending, 10) + runs("e1", "n1", 4, ending, 10) + runs("l0", "n0", 4, "", 10) +
				runs("l1", "n1", 4, "", 10) + asks("a0", 3, says("a", 2)) + asks("a1", 3, says("a", 2)),
			"a0 GangPreempting, a1 GangPreempting, e0 Existing, e1 Existing, l0 Existing, l1 Existing",
		},
		"a gang evicts what it needs besides": {
			one + runs("e0", "n0", 4, ending, 10) + runs("l0", "n0", 1, "", 10) + runs("l1", "n0", 3, "", 10) +
				asks("a0", 3, says("a", 2)) + asks("a1", 2, says("a", 2)),
			"a0 GangPreempting, a1 GangPreempting, e0 Existing, l0 Existing, l1 Preempted",
		},
		"a second preemptor": {
			two + runs("e0", "n0", 8, ending, 10) + runs("l1", "n1", 8, "", 10) + asks("a0", 4, "") + asks("a1", 4, ""),
			"a0 VictimsTerminating, a1 VictimsTerminating, e0 Existing, l1 Existing",
		},
		"a second preemptor evicts others where the first one takes the room": {
			two + runs("e0", "n0", 8, ending, 10) + runs("l1", "n1", 8, "", 10) + asks("a0", 5, "") + asks("a1", 4, ""),
			"a0 VictimsTerminating, a1 Scheduled, e0 Existing, l1 Preempted",
		},
		"a pod evicts what it needs besides": {
			one + runs("e0", "n0", 4, ending, 2000) + runs("l0", "n0", 1, "", 10) + runs("l1", "n0", 3, "", 10) +
				asks("a0", 5, ""),
			"a0 VictimsTerminating, e0 Existing, l0 Existing, l1 Preempted",
		},
		"of a quota": {
			two + quota + runs("e0", "n0", 4, ending+in, 10) + runs("l0", "n0", 4, in, 10) + asks("a0", 4, in),
			"a0 Unschedulable, e0 Existing, l0 Existing",
		},
		"of a quota, on a node with victims": {
			one + quota + runs("e0", "n0", 4, ending+in, 1000) + runs("l0", "n0", 4, in, 10) + asks("a0", 4, in),
			"a0 Unschedulable, e0 Existing, l0 Existing",
		},
		"CPUs of their own": {
			machine("n0") + exclusive("e0", 20, "LSR", ending, "\n  priority: 9000\n  nodeName: n0") +
				exclusive("l0", 10, "LSR", "", "\n  priority: 9000\n  nodeName: n0") +
				exclusive("a0", 20, "LSR", "", "\n  priority: 9500"),
			"a0 VictimsTerminating, e0 Existing, l0 Existing",
		},
		"devices": {
			one + "\n" + deviceOf("n0", twoGPUs) + "\n---" + gpus("e0", "0", ending, ", nodeName: n0, priority: 10") +
				gpus("l0", "1", "", ", nodeName: n0, priority: 10") + gpus("a0", "", "", ", priority: 1000"),
			"a0 VictimsTerminating, e0 Existing, l0 Existing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := simulate(t, c.in, "-")
			if got := endings(r); got != c.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, r.Pods)
			}
		})
	}
}

// endings returns a name and a state for each pod, or the code of the reason that names what it waits for.
func endings(r Result) string {
	var got []string
	for _, p := range r.Pods {
		state := p.State
		for _, reason := range p.Reasons {
			if reason.Code == why.VictimsTerminating || reason.Code == why.GangPreempting {
				state = reason.Code.String()
			}
		}
		got = append(got, p.Name+" "+state)
	}
	slices.Sort(got)
	return strings.Join(got, ", ")
}

// TestNoPodIsEvictedIfAllFitOnceTerminatingPodsAreGone compares with the same cluster without the pods that
// terminate, where nothing preempts: if all pending pods start there, no pod is evicted here. All pending pods ask
// for as many CPUs, so whichever nodes the first ones get, as many places are left to the others. With other sizes
// that need not hold, as pods that wait are nominated to the nodes that become free first, and pods that start go to
// those of the best score.
func TestNoPodIsEvictedIfAllFitOnceTerminatingPodsAreGone(t *testing.T) {
	t.Parallel()
	waited := 0
	rapid.Check(t, func(rt *rapid.T) {
		with, without := "", ""
		for n := range rapid.IntRange(1, 3).Draw(rt, "nodes") {
			node := fmt.Sprint("n", n)
			with, without = with+cpuNode(node, 8), without+cpuNode(node, 8)
			for i, free := 0, 8; free > 0; i++ {
				cpus := rapid.IntRange(1, free).Draw(rt, "CPUs")
				free -= cpus
				spec := fmt.Sprintf(", nodeName: %s, priority: %d", node,
					rapid.SampledFrom([]int{1, 1, 2, 10, 20}).Draw(rt, "priority"))
				if rapid.Bool().Draw(rt, "terminates") {
					with += cpuPod(fmt.Sprintf("e%d-%d", n, i), cpus, ending, spec)
				} else {
					pod := cpuPod(fmt.Sprintf("l%d-%d", n, i), cpus, "", spec)
					with, without = with+pod, without+pod
				}
			}
		}
		cpus := rapid.IntRange(1, 4).Draw(rt, "CPUs of each")
		for g := range rapid.IntRange(1, 3).Draw(rt, "pods and gangs") {
			size, metadata := rapid.IntRange(1, 3).Draw(rt, "members"), ""
			if size > 1 {
				metadata = says(fmt.Sprint("g", g), size)
			}
			for i := range size {
				name := fmt.Sprintf("a%d-%d", g, i)
				with += cpuPod(name, cpus, metadata, ", priority: 10")
				without += cpuPod(name, cpus, metadata, ", priority: 10, preemptionPolicy: Never")
			}
		}
		gone, _ := simulate(t, without, "-")
		if slices.ContainsFunc(gone.Pods, func(p Pod) bool { return p.State != Existing && p.State != Scheduled }) {
			return
		}
		waited++
		r, _ := simulate(t, with, "-")
		for _, p := range r.Pods {
			if p.State == Preempted {
				rt.Errorf("%s is evicted: %s", p.Name, endings(r))
			}
		}
	})
	if waited == 0 {
		t.Error("no case in which terminating pods free enough")
	}
}
