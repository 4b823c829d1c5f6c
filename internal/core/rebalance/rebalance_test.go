package rebalance

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// fewest returns the fewest moves between domains after which none has more than another by the skew, by breadth first.
func fewest(counts []int, skew int) int {
	type state [4]int
	at := func(s state) []int { return s[:len(counts)] }
	var start state
	copy(start[:], counts)
	seen, level := map[state]bool{start: true}, []state{start}
	for n := 0; ; n++ {
		var next []state
		for _, s := range level {
			if slices.Max(at(s))-slices.Min(at(s)) <= skew {
				return n
			}
			for i := range counts {
				for j := range counts {
					to := s
					if to[i]--; to[i] >= 0 && i != j {
						if to[j]++; !seen[to] {
							seen[to] = true
							next = append(next, to)
						}
					}
				}
			}
		}
		level = next
	}
}

func sum(all []int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}

func TestSpreadNeedsTheFewestMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(0, 6), 2, 4).Draw(t, "counts")
		skew := rapid.IntRange(1, 4).Draw(t, "skew")
		got := Spread(counts, skew, 0)
		if want := fewest(counts, skew); sum(got) != want {
			t.Fatalf("%v leave domains of %v with skew %d: %d moves, want %d", got, counts, skew, sum(got), want)
		}
	})
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counts      []int
		skew, least int
		want        []int
	}{
		"even":                     {[]int{2, 2, 2}, 1, 0, []int{0, 0, 0}},
		"within the skew":          {[]int{3, 2}, 1, 0, []int{0, 0}},
		"one too many":             {[]int{4, 2}, 1, 0, []int{1, 0}},
		"an empty domain":          {[]int{3, 3, 0}, 1, 0, []int{1, 1, 0}},
		"one domain":               {[]int{5}, 1, 0, []int{0}},
		"fewer domains than least": {[]int{5, 1}, 1, 3, []int{0, 0}},
	} {
		if got := Spread(c.counts, c.skew, c.least); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestSurplusIsTheFewestPodsAboveTheShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(0, 6), 1, 4).Draw(t, "counts")
		empty := rapid.IntRange(0, 2).Draw(t, "empty places")
		places := len(counts) + empty
		got := Surplus(counts, places)
		// Put what leaves where there is the least.
		after := append(slices.Clone(counts), make([]int, empty)...)
		for i, n := range got {
			after[i] -= n
		}
		for range sum(got) {
			low := slices.Index(after, slices.Min(after))
			after[low]++
		}
		share := int(math.Ceil(float64(sum(counts)) / float64(places)))
		if places > 1 && slices.Max(after) > max(share, 1) {
			t.Fatalf("%v leave %v: a place has %d of a share of %d", got, counts, slices.Max(after), share)
		}
		for i, n := range got {
			if n > 0 && counts[i]-n < max(share, 1) {
				t.Fatalf("%v leave %v: node %d loses more than its surplus", got, counts, i)
			}
		}
	})
}

func drawPlan(t *rapid.T) *Plan {
	p := &Plan{Whole: rapid.Bool().Draw(t, "whole")}
	limit := float64(rapid.IntRange(50, 100).Draw(t, "limit"))
	p.Limits = func(int) Percentages { return Percentages{"cpu": limit} }
	p.Rank = func(target int) float64 { return p.Nodes[target].Use("cpu") }
	for i := range rapid.IntRange(2, 5).Draw(t, "nodes") {
		n := Node{Allocatable: amount.List{"cpu": 100, "memory": 50}, Used: amount.List{}}
		for range rapid.IntRange(0, 4).Draw(t, "pods") {
			pod := Pod{
				Requests: amount.List{
					"cpu":    rapid.Int64Range(0, 40).Draw(t, "cpu"),
					"memory": rapid.Int64Range(0, 20).Draw(t, "memory"),
				},
				Fixed: rapid.IntRange(0, 3).Draw(t, "fixed") == 0,
			}
			n.Used.Add(pod.Requests)
			n.Pods = append(n.Pods, pod)
		}
		p.Nodes = append(p.Nodes, n)
		if rapid.Bool().Draw(t, "source") {
			p.Sources = append(p.Sources, i)
		} else {
			p.Targets = append(p.Targets, i)
		}
	}
	if rapid.Bool().Draw(t, "until") {
		p.Until = func(n *Node) bool { return n.Use("cpu") <= 40 }
	}
	return p
}

// A plan is compared with a count of its own of what each node has after each move.
func TestAPlanHoldsItsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		used := make([]amount.List, len(p.Nodes))
		for i, n := range p.Nodes {
			used[i] = amount.List{"cpu": n.Used["cpu"], "memory": n.Used["memory"]}
		}
		moved, refused := map[[2]int]bool{}, map[[2]int]bool{}
		p.Run(func(s, pod, target int) bool {
			if !slices.Contains(p.Sources, s) || !slices.Contains(p.Targets, target) || p.Nodes[s].Pods[pod].Fixed ||
				moved[[2]int{s, pod}] {
				t.Fatalf("pod %d of node %d is moved to node %d", pod, s, target)
			}
			if p.Until != nil && 100*used[s]["cpu"] <= 40*100 {
				t.Fatalf("node %d loses a pod with %v", s, used[s])
			}
			if rapid.IntRange(0, 3).Draw(t, "refuse") == 0 {
				refused[[2]int{s, pod}] = true
				return false
			}
			moved[[2]int{s, pod}] = true
			for r, amount := range p.Nodes[s].Pods[pod].Requests {
				used[s][r] -= amount
				used[target][r] += amount
			}
			limit := p.Limits(target)["cpu"]
			if requests := p.Nodes[s].Pods[pod].Requests; requests["cpu"] > 0 &&
				float64(used[target]["cpu"]) > limit+1e-9 ||
				requests["memory"] > 0 && used[target]["memory"] > 50 {
				t.Fatalf("node %d has %v", target, used[target])
			}
			return true
		})
		if p.Whole {
			return
		}
		// What was not moved finds no place, was refused, or need not move.
		for _, s := range p.Sources {
			for i, pod := range p.Nodes[s].Pods {
				key := [2]int{s, i}
				if pod.Fixed || moved[key] || refused[key] || p.Until != nil && 100*used[s]["cpu"] <= 40*100 {
					continue
				}
				for _, target := range p.Targets {
					if p.Nodes[target].holds(pod, p.Limits(target)) {
						t.Fatalf("pod %d of node %d would have a place on node %d", i, s, target)
					}
				}
			}
		}
	})
}

func TestAWholeNodeLosesAllPodsOrNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		p.Whole, p.Until = true, nil
		moved := map[int]int{}
		p.Run(func(s, _, _ int) bool {
			moved[s]++
			return true
		})
		for _, s := range p.Sources {
			movable := 0
			for _, pod := range p.Nodes[s].Pods {
				if !pod.Fixed {
					movable++
				}
			}
			if moved[s] != 0 && moved[s] != movable {
				t.Fatalf("node %d loses %d of %d pods", s, moved[s], movable)
			}
		}
	})
}

func TestTheImbalanceIsTheDeviationOfTheFractions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		resources := []string{"cpu", "memory", "gpu"}
		n := Node{Allocatable: amount.List{}, Used: amount.List{}, Pods: []Pod{{Requests: amount.List{}}}}
		deviation := func(without amount.List) float64 {
			var mean, all float64
			for _, r := range resources {
				mean += float64(n.Used[r]-without[r]) / float64(n.Allocatable[r]) / 3
			}
			for _, r := range resources {
				all += math.Pow(float64(n.Used[r]-without[r])/float64(n.Allocatable[r])-mean, 2) / 3
			}
			return math.Sqrt(all)
		}
		for _, r := range resources {
			n.Allocatable[r] = rapid.Int64Range(1, 100).Draw(t, "allocatable")
			n.Used[r] = rapid.Int64Range(0, n.Allocatable[r]).Draw(t, "used")
			n.Pods[0].Requests[r] = rapid.Int64Range(0, n.Used[r]).Draw(t, "pod")
		}
		want := deviation(nil) - deviation(n.Pods[0].Requests)
		if got := Falls(&n, resources)[0]; math.Abs(got-want) > 1e-6 {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestMeans(t *testing.T) {
	t.Parallel()
	nodes := []Node{
		{Allocatable: amount.List{"cpu": 100}, Used: amount.List{"cpu": 10}}, {
			Allocatable: amount.List{"cpu": 100},
			Used:        amount.List{"cpu": 50},
		},
	}
	if got := Means(nodes, Percentages{"cpu": 20})["cpu"]; got != 50 {
		t.Errorf("20 above the mean is %v, want 50", got)
	}
	if got := Means(nodes, Percentages{"cpu": -40})["cpu"]; got != 0 {
		t.Errorf("40 below the mean is %v, want 0", got)
	}
}
