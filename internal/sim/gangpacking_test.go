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

// TestAGangStartsWhereItsQuotaAndNodesHaveRoomForItsMinimum compares the scheduler with brute force: gangs of at most 5
// members, of which some are enough, on at most 3 nodes, with a quota for most members.
func TestAGangStartsWhereItsQuotaAndNodesHaveRoomForItsMinimum(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 55))
	fitting, short := 0, 0
	for range 150 {
		var free, members []int
		var inQuota []bool
		in := ""
		for n := range 1 + r.IntN(3) {
			free = append(free, 2+r.IntN(6))
			in += cpuNode(fmt.Sprint("n", n), free[n])
		}
		limit := 1 + r.IntN(9)
		ceiling := fmt.Sprintf("{cpu: %d}", limit)
		// In another namespace, so that pods without the label are in no quota.
		in += strings.Replace(elastic(koordinator, "q", "", ceiling, ceiling), "name: q", "name: q, namespace: t", 1) +
			"\n{apiVersion: v1, kind: Namespace, metadata: {name: t}}\n---"
		size := 2 + r.IntN(4)
		least := 1 + r.IntN(size)
		for m := range size {
			members, inQuota = append(members, 1+r.IntN(6)), append(inQuota, r.IntN(4) > 0)
			metadata := says("g", least)
			if inQuota[m] {
				metadata += ", labels: {quota.scheduling.koordinator.sh/name: q}"
			}
			in += cpuPod(fmt.Sprint("p", m), members[m], metadata, "")
		}
		var fits func(m, left, lacks int) bool
		fits = func(m, left, lacks int) bool {
			if m == size || lacks == 0 {
				return lacks == 0
			}
			takes := 0
			if inQuota[m] {
				takes = members[m]
			}
			for n := range free {
				if free[n] < members[m] || takes > left {
					continue
				}
				free[n] -= members[m]
				found := fits(m+1, left-takes, lacks-1)
				if free[n] += members[m]; found {
					return true
				}
			}
			return fits(m+1, left, lacks)
		}
		want, started := fits(0, limit, least), 0
		result, _ := simulate(t, in, "-")
		for _, p := range result.Pods {
			if p.State == Scheduled {
				started++
			}
		}
		if got := started > 0; got != want || got && started < least {
			t.Fatalf("%d of at least %d start, the gang fits: %v; members %v, in the quota of %d %v, nodes %v",
				started, least, want, members, limit, inQuota, free)
		}
		if want {
			fitting++
		} else {
			short++
		}
	}
	if fitting < 30 || short < 30 {
		t.Errorf("%d gangs fit, and %d do not", fitting, short)
	}
}

// TestAGangThatFillsItsGPUsStarts: the members fill each of the four GPUs of a node exactly.
func TestAGangThatFillsItsGPUsStarts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 55))
	devices := ""
	for i := range 4 {
		devices += fmt.Sprintf("{type: gpu, id: GPU-%[1]d, minor: %[1]d, health: true, resources: {koordinator.sh/"+
			"gpu-core: 100, koordinator.sh/gpu-memory: 80Gi, koordinator.sh/gpu-memory-ratio: 100}}, ", i)
	}
	for range 25 {
		var percent []int
		for range 4 {
			for left := 100; left > 0; left -= percent[len(percent)-1] {
				percent = append(percent, min(5+5*r.IntN(10), left))
			}
		}
		r.Shuffle(len(percent), func(i, j int) { percent[i], percent[j] = percent[j], percent[i] })
		in := cpuNode("n0", 64) + "\n" + deviceOf("n0", devices) + "\n---"
		for i, n := range percent {
			asked := fmt.Sprintf("{cpu: 1, memory: 1Gi, koordinator.sh/gpu: %d}", n)
			in += fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: m%02d%s}, spec: {containers: [{name: c, "+
				"image: i, resources: {requests: %s, limits: %[3]s}}]}}\n---", i, says("g", len(percent)), asked)
		}
		result, _ := simulate(t, in, "-")
		if slices.ContainsFunc(result.Pods, func(p Pod) bool { return p.State != Scheduled }) {
			t.Errorf("members of %v do not start: %+v", percent, result.Pods[0])
		}
	}
}
