package main

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/core/fragment"
)

// conserves fails unless what the nodes have free is what the pods that run leave of them, and no GPU is given twice.
func (c *churned) conserves(t *testing.T, loaded *trace) {
	t.Helper()
	want, used := slices.Clone(loaded.nodes), int64(0)
	for uid, h := range c.running {
		n := &want[h.node]
		if bits.OnesCount64(h.gpus) != int(h.GPUs) || !h.runsOn(n.Model) {
			t.Errorf("pod %s asks for %d GPUs and has %b", uid, h.GPUs, h.gpus)
		}
		n.take(h.pod, h.gpus)
		used += h.demand()
	}
	for i := range want {
		got, n := &c.nodes[i], &want[i]
		if n.MilliCPU < 0 || n.memory < 0 || slices.ContainsFunc(n.Free, func(free int64) bool { return free < 0 }) {
			t.Errorf("%s: the pods take more than it has: %+v", n.name, n)
		}
		if got.MilliCPU != n.MilliCPU || got.memory != n.memory || !slices.Equal(got.Free, n.Free) {
			t.Errorf("%s has free %+v, want %+v", n.name, got, n)
		}
	}
	if c.used != used {
		t.Errorf("%d milli of GPUs are allocated, want %d", c.used, used)
	}
}

func TestMovesLoseNoPodAndGiveNoGPUTwice(t *testing.T) {
	t.Parallel()
	loaded := made(t)
	moved := map[int]int{}
	for _, policy := range []string{"rollout", "random"} {
		for seed := range uint64(3) {
			before, err := churn(loaded, policy, fragment.Standard(), seed, 100)
			if err != nil {
				t.Fatal(err)
			}
			before.conserves(t, loaded)
			for _, moves := range []int{0, 1, 2, 4} {
				after := before.clone(seed)
				m, err := after.makeRoom(moves)
				if err != nil {
					t.Fatal(err)
				}
				after.conserves(t, loaded)
				elsewhere := 0
				for uid, h := range before.running {
					now, runs := after.running[uid]
					if !runs || now.pod != h.pod {
						t.Errorf("pod %s ran, and does not run now: %+v", uid, now)
					}
					if now.node != h.node {
						elsewhere++
					}
				}
				placed := 0
				for _, a := range before.waiting {
					h, runs := after.running[a.uid]
					if runs == slices.Contains(after.waiting, a) || runs && h.pod != a.pod {
						t.Errorf("pod %s runs: %t, with %+v", a.uid, runs, h)
					}
					if runs {
						placed++
					}
				}
				if placed != m.placed || len(after.running) != len(before.running)+placed {
					t.Errorf("%d pods run and %d were placed, want %d and %d", len(after.running), m.placed,
						len(before.running)+placed, placed)
				}
				if elsewhere > m.moved || m.moved > moves*m.placed || (moves == 0 && placed > 0) {
					t.Errorf("%d pods were moved, and %d are elsewhere, for %d pods with at most %d moves each",
						m.moved, elsewhere, m.placed, moves)
				}
				moved[moves] += m.moved
			}
			before.conserves(t, loaded)
		}
	}
	if moved[2] == 0 || moved[4] <= moved[2] {
		t.Errorf("pods moved, by the limit: %v: the test proves little", moved)
	}
}

// The pods ask for the stated part of all GPUs again after some have left.
func TestPodsThatLeaveAreReplaced(t *testing.T) {
	t.Parallel()
	loaded := made(t)
	for _, demand := range []int64{50, 100} {
		c, err := churn(loaded, "rollout", fragment.Standard(), 1, demand)
		if err != nil {
			t.Fatal(err)
		}
		asked := c.used
		for _, a := range c.waiting {
			asked += a.demand()
		}
		last := slices.Max(slices.Collect(maps.Keys(c.running)))
		if percent := loaded.percent(asked); percent < float64(demand) || percent > float64(demand)+3 {
			t.Errorf("the pods up to %s ask for %.1f percent, want %d", last, percent, demand)
		}
	}
}

// Two pods on full nodes cannot change places: each needs its new place while it has the old one.
func TestAPodHasItsPlaceBeforeItLeaves(t *testing.T) {
	t.Parallel()
	nodes, pods := nodeHead+"a,4,9,1,A\nb,8,9,1,A\nc,4,9,0,A\n", podHead+"p,4,1,1,1000,\nq,4,1,1,1000,\nr,8,1,0,0,\n"
	loaded, err := load(write(t, "nodes.csv", nodes), write(t, "pods.csv", pods))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCluster(loaded, "rollout", fragment.Standard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := &churned{cluster: c, running: map[string]holding{
		"p": c.put(&loaded.pods[0], 0, 1), "q": c.put(&loaded.pods[1], 1, 1),
	}}
	r := &room{all, &loaded.pods[2]}
	moves := []defrag.Move{
		{Pod: defrag.Pod{UID: "p", Node: "a"}, Target: "b"}, {Pod: defrag.Pod{UID: "q", Node: "b"}, Target: "a"},
	}
	if works, err := r.Works(moves); works || err != nil {
		t.Errorf("works: %t, %v", works, err)
	}
	if err := all.move(moves); err == nil || !strings.Contains(err.Error(), "pod p does not fit on b") {
		t.Errorf("error %v", err)
	}
}

func TestTheTableOfRoomHasARowForEachDemandAndLimit(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := compareRoom(&out, made(t), "made", "random", fragment.Standard(), 2); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3+3*4 || !strings.HasPrefix(lines[0], "room: trace=made policy=random seeds=2 leaving=5%") {
		t.Errorf("%d lines:\n%s", len(lines), &out)
	}
}
