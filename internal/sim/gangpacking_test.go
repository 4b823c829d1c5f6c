package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestAGangOfDifferentMembersStarts: gangs that fit an empty cluster start, whatever the names of their members say of
// the order. GPUs are an extended resource here.
func TestAGangOfDifferentMembersStarts(t *testing.T) {
	const (
		gpu     = ", nvidia.com/gpu: "
		select0 = ", nodeSelector: {kubernetes.io/hostname: n0}"
	)
	both := strings.TrimSuffix(says("%s", 1), "}") +
		`, gang.scheduling.koordinator.sh/groups: '["default/g","default/h"]'}`
	node := func(name string, cpus, gpus int) string {
		return strings.ReplaceAll(cpuNode(name, cpus), "pods: 200", fmt.Sprintf("pods: 200%s%d", gpu, gpus))
	}
	pod := func(name string, cpus, gpus int, metadata, spec string) string {
		asked := fmt.Sprintf("requests: {cpu: %d}", cpus)
		return strings.ReplaceAll(cpuPod(name, cpus, metadata, spec), asked,
			fmt.Sprintf("requests: {cpu: %d%s%d}, limits: {nvidia.com/gpu: %[3]d}", cpus, gpu, gpus))
	}
	four := cpuNode("n0", 4) + cpuNode("n1", 4)
	for name, in := range map[string]string{
		"the largest has the last name": four + cpuPod("a0", 2, says("g", 3), "") + cpuPod("a1", 2, says("g", 3), "") +
			cpuPod("b0", 4, says("g", 3), ""),
		"gangs that start together": four + cpuPod("a0", 2, fmt.Sprintf(both, "g"), "") +
			cpuPod("a1", 2, fmt.Sprintf(both, "g"), "") + cpuPod("b0", 4, fmt.Sprintf(both, "h"), ""),
		"four members with one GPU before one with four": node("n0", 8, 4) + node("n1", 8, 4) +
			pod("a0", 1, 1, says("g", 5), "") + pod("a1", 1, 1, says("g", 5), "") + pod("a2", 1, 1, says("g", 5), "") +
			pod("a3", 1, 1, says("g", 5), "") + pod("b0", 1, 4, says("g", 5), ""),
		"the member with a selector comes last": four + cpuPod("a0", 3, says("g", 3), "") +
			cpuPod("a1", 1, says("g", 3), "") + cpuPod("b0", 3, says("g", 3), select0),
		"no order alone finds it": cpuNode("n0", 6) + cpuNode("n1", 6) + cpuPod("a0", 3, says("g", 5), "") +
			cpuPod("a1", 3, says("g", 5), "") + cpuPod("a2", 2, says("g", 5), "") + cpuPod("a3", 2, says("g", 5), "") +
			cpuPod("a4", 2, says("g", 5), ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := simulate(t, in, "-")
			if slices.ContainsFunc(r.Pods, func(p Pod) bool { return p.State != Scheduled }) {
				t.Errorf("got %+v", r.Pods)
			}
		})
	}
}

// TestAGangThatBruteForceFitsStarts compares the scheduler with brute force: gangs of at most 6 members with CPUs, some
// of them with a node selector, on at most 4 nodes.
func TestAGangThatBruteForceFitsStarts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 41))
	fitting := 0
	for range 150 {
		var free, members, only []int
		in := ""
		for n := range 1 + r.IntN(4) {
			free = append(free, 3+r.IntN(8))
			in += cpuNode(fmt.Sprint("n", n), free[n])
		}
		for m := range 2 + r.IntN(5) {
			members, only = append(members, 1+r.IntN(5)), append(only, -1)
			if r.IntN(4) == 0 {
				only[m] = r.IntN(len(free))
			}
		}
		for m, cpus := range members {
			spec := ""
			if only[m] >= 0 {
				spec = fmt.Sprintf(", nodeSelector: {kubernetes.io/hostname: n%d}", only[m])
			}
			in += cpuPod(fmt.Sprint("p", m), cpus, says("g", len(members)), spec)
		}
		var fits func(m int) bool
		fits = func(m int) bool {
			if m == len(members) {
				return true
			}
			for n := range free {
				if free[n] < members[m] || only[m] >= 0 && only[m] != n {
					continue
				}
				free[n] -= members[m]
				found := fits(m + 1)
				if free[n] += members[m]; found {
					return true
				}
			}
			return false
		}
		want := fits(0)
		result, _ := simulate(t, in, "-")
		for _, p := range result.Pods {
			if got := p.State == Scheduled; got != want {
				t.Fatalf("%s is %s; the gang fits: %v; members %v, only on %v, nodes %v",
					p.Name, p.State, want, members, only, free)
			}
		}
		if want {
			fitting++
		}
	}
	if fitting < 30 {
		t.Errorf("only %d gangs fit", fitting)
	}
}
