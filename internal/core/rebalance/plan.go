package rebalance

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Percentages are parts of 100 by the names of resources.
type Percentages map[string]float64

// Pod is what a plan reads of a pod.
type Pod struct {
	Requests amount.List
	// Fixed pods belong to their node, and leave with it.
	Fixed bool
}

// Node is a node with its pods, in the order in which they are moved.
type Node struct {
	Allocatable, Used amount.List
	Pods              []Pod
}

// Use returns the use of a resource in percent. Of one that the node does not have, it is 0 without a use, else 100.
func (n *Node) Use(resource string) float64 {
	if n.Allocatable[resource] <= 0 {
		return 100 * float64(min(n.Used[resource], 1))
	}
	return 100 * float64(n.Used[resource]) / float64(n.Allocatable[resource])
}

// Most returns the use of the resource of those that is used most.
func (n *Node) Most(resources Percentages) (most float64) {
	for r := range resources {
		most = max(most, n.Use(r))
	}
	return most
}

// Below reports whether the use is below all limits.
func (n *Node) Below(limits Percentages) bool {
	for r, limit := range limits {
		if n.Use(r) >= limit {
			return false
		}
	}
	return true
}

// Above reports whether the use is above any limit.
func (n *Node) Above(limits Percentages) bool {
	for r, limit := range limits {
		if n.Use(r) > limit {
			return true
		}
	}
	return false
}

// holds reports whether a pod leaves the use at or below the limits, 100 where there is none.
func (n *Node) holds(p Pod, limits Percentages) bool {
	for r, amount := range p.Requests {
		limit, ok := limits[r]
		if !ok {
			limit = 100
		}
		if amount > 0 && float64(n.Used[r]+amount) > limit/100*float64(n.Allocatable[r]) {
			return false
		}
	}
	return true
}

// Means returns limits at a distance from the mean use of all nodes, from 0 to 100.
func Means(nodes []Node, distance Percentages) Percentages {
	limits := Percentages{}
	for r, d := range distance {
		sum := 0.0
		for i := range nodes {
			sum += nodes[i].Use(r)
		}
		limits[r] = min(max(sum/float64(max(len(nodes), 1))+d, 0), 100)
	}
	return limits
}

// Plan moves pods between nodes.
type Plan struct {
	Nodes []Node
	// Sources are nodes that pods leave, in order; Targets are those that take them. No node is both.
	Sources, Targets []int
	// Limits are the use of a target that no move exceeds; 100 for other resources.
	Limits func(target int) Percentages
	// Until reports that a source has lost enough pods; nil never does.
	Until func(source *Node) bool
	// Rank orders the targets that hold a pod: the lowest one gets it.
	Rank func(target int) float64
	// Whole moves pods only from nodes that can lose all pods that are not fixed.
	Whole bool
}

// Run moves pods as long as a source is to lose some and a target holds them. It asks for each move, and counts those
// that are accepted.
func (p *Plan) Run(move func(source, pod, target int) bool) {
	for i := range p.Nodes {
		p.Nodes[i].Used = maps.Clone(p.Nodes[i].Used)
	}
	for _, s := range p.Sources {
		if p.Whole && !p.empties(s) {
			continue
		}
		source := &p.Nodes[s]
		for i, pod := range source.Pods {
			if p.Until != nil && p.Until(source) {
				break
			}
			if pod.Fixed {
				continue
			}
			t := p.target(pod)
			if t >= 0 && move(s, i, t) {
				source.Used.Take(pod.Requests)
				p.Nodes[t].Used.Add(pod.Requests)
			} else if p.Whole {
				break
			}
		}
	}
}

// target returns the best one that holds a pod, -1 if none does.
func (p *Plan) target(pod Pod) int {
	fit := slices.DeleteFunc(slices.Clone(p.Targets), func(t int) bool {
		return !p.Nodes[t].holds(pod, p.Limits(t))
	})
	if len(fit) == 0 {
		return -1
	}
	return slices.MinFunc(fit, func(a, b int) int { return cmp.Compare(p.Rank(a), p.Rank(b)) })
}

// empties reports whether all pods of a source find a target together.
func (p *Plan) empties(source int) (all bool) {
	all = true
	placed := map[int]int{}
	for i, pod := range p.Nodes[source].Pods {
		if pod.Fixed {
			continue
		}
		t := p.target(pod)
		if all = t >= 0; !all {
			break
		}
		p.Nodes[t].Used.Add(pod.Requests)
		placed[i] = t
	}
	for i, t := range placed {
		p.Nodes[t].Used.Take(p.Nodes[source].Pods[i].Requests)
	}
	return all
}

// Imbalance returns the standard deviation of the used fractions of those resources that the node has.
func Imbalance(used, allocatable amount.List, resources []string) float64 {
	var sum, squares, n float64
	for _, r := range resources {
		if allocatable[r] > 0 {
			f := float64(used[r]) / float64(allocatable[r])
			sum, squares, n = sum+f, squares+f*f, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return math.Sqrt(max(squares/n-sum/n*sum/n, 0))
}

// Falls returns by how much the imbalance of a node falls with each of its pods.
func Falls(n *Node, resources []string) []float64 {
	before, falls := Imbalance(n.Used, n.Allocatable, resources), make([]float64, len(n.Pods))
	without := amount.List{}
	for i, p := range n.Pods {
		for _, r := range resources {
			without[r] = n.Used[r] - p.Requests[r]
		}
		falls[i] = before - Imbalance(without, n.Allocatable, resources)
	}
	return falls
}

// Surplus returns how many equal pods should leave each node, so that none of so many places has more than its share,
// rounded up. A node with one pod keeps it.
func Surplus(counts []int, places int) []int {
	total, leaving := 0, make([]int, len(counts))
	for _, n := range counts {
		total += n
	}
	if places < 2 {
		return leaving
	}
	share := max((total+places-1)/places, 1)
	for i, n := range counts {
		leaving[i] = max(n-share, 0)
	}
	return leaving
}

// Spread returns how many pods should leave each domain for a smaller one, with the fewest moves after which no two
// domains differ by more than the skew. Fewer domains than least are left alone: pods cannot go where there is nothing.
func Spread(counts []int, skew, least int) []int {
	leaving := make([]int, len(counts))
	if len(counts) < max(least, 2) || skew < 1 {
		return leaving
	}
	now := append([]int{}, counts...)
	for {
		high, low := 0, 0
		for i, n := range now {
			if n < now[low] {
				low = i
			}
			if n > now[high] {
				high = i
			}
		}
		if now[high]-now[low] <= skew {
			break
		}
		now[high]--
		now[low]++
	}
	for i, n := range now {
		leaving[i] = max(counts[i]-n, 0)
	}
	return leaving
}
