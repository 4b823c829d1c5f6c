package oracle

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
)

func TestEqualSeedsDrawEqualCases(t *testing.T) {
	t.Parallel()
	for i := range uint64(50) {
		if a, b := Draw("1.37", 9, i), Draw("1.37", 9, i); !reflect.DeepEqual(a, b) {
			t.Errorf("case %d differs between two draws", i)
		}
	}
	if reflect.DeepEqual(Draw("1.37", 9, 0), Draw("1.37", 10, 0)) {
		t.Error("two seeds draw the same case")
	}
}

func TestTheModelAcceptsEveryDrawnMachine(t *testing.T) {
	t.Parallel()
	for i := range uint64(2000) {
		c := Draw("1.37", 3, i)
		if _, reason, err := newModel("1.37", &c.Machine); err != nil || reason.Code != why.None {
			t.Errorf("case %d: %v, %v", i, reason, err)
		}
	}
}

// The coverage that a run promises: each of these has to be drawn in a hundred of 5,000 cases at least.
func TestDrawnCasesCoverTheLaw(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	mark := func(what string, holds bool) {
		if holds {
			seen[what]++
		} else {
			seen[what] += 0
		}
	}
	const cases = 5000
	for i := range uint64(cases) {
		c := Draw("1.37", 4, i)
		m := &c.Machine
		nodes, threads, l3s, cpuless := len(m.NUMA), map[int]bool{}, map[int]bool{}, false
		for _, n := range m.NUMA {
			cpuless = cpuless || len(n.Cores) == 0
			for _, k := range n.Cores {
				threads[len(k.Threads)], l3s[k.L3] = true, true
			}
		}
		for _, n := range []int{1, 2, 3, 4, 5, 6, 8} {
			mark(string(rune('0'+n))+" nodes", nodes == n)
		}
		mark("4 to 10 nodes", nodes >= 4 && nodes <= 10)
		mark("sparse node ids", m.NUMA[nodes-1].ID != nodes-1)
		mark("nodes without CPUs", cpuless)
		mark("hybrid cores", len(threads) > 1)
		for _, n := range []int{1, 2, 4} {
			mark(string(rune('0'+n))+" threads", len(threads) == 1 && threads[n])
		}
		mark("several L3 groups in a node", len(l3s) > nodes)
		mark("more sockets than nodes", m.Sockets > nodes)
		mark("several nodes in a socket", m.Sockets < nodes)
		mark("reserved by ids", m.ReservedIDs != "")
		mark("reserved by amount", m.ReservedCPU > 0)
		mark("huge pages of one size", len(sizesOf(m)) == 1)
		mark("huge pages of two sizes", len(sizesOf(m)) == 2)
		mark("plugins that do not obey", m.Stubborn && len(m.Devices) > 0)
		mark("policy "+m.TopologyPolicy, true)
		mark("scope "+m.TopologyScope, true)
		mark("memory "+m.MemoryPolicy, true)
		for option := range maps.Keys(m.CPUOptions) {
			mark(option, true)
		}
		for option := range maps.Keys(m.TopologyOptions) {
			mark(option, true)
		}
		mark("devices on several nodes", slices.ContainsFunc(m.Devices,
			func(v Device) bool { return len(v.Nodes) > 1 }))
		mark("devices without topology", slices.ContainsFunc(m.Devices,
			func(v Device) bool { return len(v.Nodes) == 0 }))
		mark("unhealthy devices", slices.ContainsFunc(m.Devices, func(v Device) bool { return v.Unhealthy }))
		pods := 0
		for _, s := range c.Steps {
			mark("deletions", s.Delete != "")
			mark("restarts", s.Restart)
			if s.Admit == nil {
				continue
			}
			pods++
			mark("pod level", s.Admit.PodLevel)
			mark("not guaranteed", !s.Admit.Guaranteed)
			for _, k := range s.Admit.Containers {
				mark("container "+k.Role, true)
				mark("broken CPUs", k.CPU%1000 != 0)
				for _, amounts := range []map[string]int64{k.Memory, k.Devices} {
					for _, n := range amounts {
						mark("amounts of 0", n == 0)
					}
				}
			}
		}
		if pods == 0 || pods > maxPods {
			t.Errorf("case %d admits %d pods, want 1 to %d", i, pods, maxPods)
		}
		mark("ten pods and more", pods >= 10)
	}
	want := []string{
		"policy none", "policy best-effort", "policy restricted", "policy single-numa-node", "scope container",
		"scope pod",
		"memory Static", "memory None", "full-pcpus-only", "distribute-cpus-across-numa",
		"distribute-cpus-across-cores",
		"align-by-socket", "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache", "prefer-closest-numa-nodes",
		"max-allowable-numa-nodes", "container app", "container init", "container sidecar",
	}
	for _, what := range append(want, slices.Collect(maps.Keys(seen))...) {
		if seen[what] < 100 {
			t.Errorf("%s: %d of %d cases, want 100", what, seen[what], cases)
		}
	}
	for what, share := range map[string][2]int{
		"1 nodes": {7, 13}, "2 nodes": {30, 40}, "4 to 10 nodes": {45, 55},
		"8 nodes": {3, 7},
	} {
		if got := seen[what] * 100 / cases; got < share[0] || got > share[1] {
			t.Errorf("%s: %d %%, want %d to %d", what, got, share[0], share[1])
		}
	}
}
