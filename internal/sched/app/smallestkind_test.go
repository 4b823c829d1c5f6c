package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// verified asks what-if about each fix of a pod, and returns their messages by kind, without where they were tried.
func (a *asked) verified(r *rapid.T, pod string) map[string]string {
	fixes, search := a.fixes(pod)
	if search != nil && search.Exhausted {
		r.Fatalf("the search ended early: %+v", search)
	}
	found := map[string]string{}
	for _, f := range fixes {
		answer, err := a.whatIf.Answer(a.t.Context(), &view.WhatIf{
			Changes: f.Changes, Ask: view.Ask{Pods: []string{"default/" + pod}},
		})
		if err != nil || len(answer.Placements) != 1 || answer.Placements[0].Node != f.Node {
			r.Fatalf("%s: the question has the answer %+v, %v", f.Message, answer, err)
		}
		found[f.Kind], _, _ = strings.Cut(f.Message, " (tried")
	}
	return found
}

// TestTheNUMAPolicyIsLeftOutWhereThatAloneHelps makes random clusters whose NUMA nodes have 0 to 8 free CPUs each. A
// fix leaves out the policy of a pod that fits no NUMA node but a node, or requests what the largest NUMA node has.
func TestTheNUMAPolicyIsLeftOutWhereThatAloneHelps(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		names := []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(r, "nodes")]
		a := newAsked(t, names...)
		var largest, all int // free CPUs of a NUMA node, of a node
		for _, name := range names {
			free, most := 0, 0
			for numa := range 4 {
				used := rapid.IntRange(0, 4).Draw(r, "cores in use")
				if used > 0 {
					a.add(bound(fmt.Sprintf("on-%s-%d", name, numa), name, list(4*numa+4-used, 2*used),
						object.Priority(9500)))
				}
				free += 8 - 2*used
				most = max(most, 8-2*used)
			}
			free -= 2 // a core is left for pods without CPUs of their own
			all, largest = max(all, free), max(largest, min(most, free))
		}
		cpus := 2 * rapid.IntRange(1, 8).Draw(r, "half of the CPUs")
		a.know(exclusive("waits", fmt.Sprint(cpus),
			object.Annotation(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"SingleNUMANode"}`)))
		found := a.verified(r, "waits")
		want := map[string]string{view.FixPolicy: "", view.FixRequest: ""}
		if cpus > largest {
			if cpus <= all {
				want[view.FixPolicy] = "do not require NUMA topology policy SingleNUMANode"
			}
			if largest > 0 {
				want[view.FixRequest] = fmt.Sprintf("request cpu %d instead of %d in container main", largest, cpus)
			}
		}
		for kind, message := range want {
			if found[kind] != message {
				r.Fatalf("%d CPUs, free %d on a NUMA node and %d on a node: %q, want %q; fixes %v", cpus, largest, all,
					found[kind], message, found)
			}
			if message != "" {
				seen[kind]++
			}
		}
	})
	if !testing.Short() && (seen[view.FixPolicy] == 0 || seen[view.FixRequest] == 0) {
		t.Errorf("outcomes %v, want all of them", seen)
	}
}

// TestTheAmountOfGPUsOfAFixIsTheLargestThatFits makes random clusters whose GPUs have 0 to 100 percent free. A fix asks
// for the largest share in steps of ten percent, or for the largest number of whole GPUs.
func TestTheAmountOfGPUsOfAFixIsTheLargestThatFits(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		a := newAsked(t)
		var share, whole int // the largest free part of a GPU, the most free GPUs of a node
		var all []int
		for _, name := range []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(r, "nodes")] {
			gpus, free := rapid.IntRange(1, 4).Draw(r, "GPUs"), 0
			a.equip(name, grid.Worked(), map[string]string{}, gpus, 110)
			for minor := range gpus {
				used := 10 * rapid.SampledFrom([]int{0, 0, 3, 6, 9, 10}).Draw(r, "tenths in use")
				if used > 0 {
					percent := fmt.Sprint(used)
					a.add(exclusive(fmt.Sprintf("on-%s-%d", name, minor), "1", object.On(name), object.Class("LS"),
						object.Priority(9500), object.Both("cpu", "1", "koordinator.sh/gpu-core", percent,
							"koordinator.sh/gpu-memory-ratio", percent),
						object.Annotation(annotation.DeviceAllocatedKey, fmt.Sprintf(`{"gpu":[{"minor":%d,`+
							`"id":"GPU-%s-%d","resources":{"koordinator.sh/gpu-core":"%d",`+
							`"koordinator.sh/gpu-memory-ratio":"%d","koordinator.sh/gpu-memory":"%d"}}]}`,
							minor, name, minor, used, used, (8<<30)*used/100))))
				} else {
					free++
				}
				share = max(share, 100-used)
				all = append(all, 100-used)
			}
			whole = max(whole, free)
		}
		asked := rapid.SampledFrom([]int{20, 50, 80, 100, 200, 300, 500}).Draw(r, "asked")
		fits := func(percent int) bool {
			if percent <= 100 {
				return percent <= share
			}
			return percent/100 <= whole
		}
		text := fmt.Sprint(asked)
		a.know(exclusive("waits", "1", object.Class("LS"), object.Both("cpu", "1", "memory", "1Gi",
			"koordinator.sh/gpu-core", text, "koordinator.sh/gpu-memory-ratio", text)))
		want := ""
		step := 10
		if asked > 100 {
			step = 100
		}
		for n := asked - step; n > 0 && want == "" && !fits(asked); n -= step {
			if fits(n) {
				want = fmt.Sprintf("request koordinator.sh/gpu-core and koordinator.sh/gpu-memory-ratio %d "+
					"instead of %d in container main", n, asked)
			}
		}
		found := a.verified(r, "waits")
		if got := found[view.FixRequest]; got != want || fits(asked) && len(found) > 0 {
			slices.Sort(all)
			r.Fatalf("%d%%, free %v: %q, want %q; fixes %v", asked, all, got, want, found)
		}
		switch {
		case fits(asked):
			seen["fits"]++
		case want == "":
			seen["none"]++
		default:
			seen[fmt.Sprint("step ", step)]++
		}
	})
	for _, outcome := range []string{"fits", "none", "step 10", "step 100"} {
		if seen[outcome] == 0 && !testing.Short() {
			t.Errorf("outcomes %v, want %s among them", seen, outcome)
		}
	}
}
