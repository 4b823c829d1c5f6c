package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/rebalance"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// fleet is what a BalancePlugin compares: nodes with what their pods request.
type fleet struct {
	nodes []*corev1.Node
	pods  [][]*corev1.Pod // by node: those of rows, in the same order
	rows  []rebalance.Node
	// bound is whether a node has a pod that may not be moved, and is of no DaemonSet.
	bound []bool
}

// measure returns the nodes with their pods that have not ended. Of these, those that movable selects are listed, and
// pods of a DaemonSet, which are fixed; others are only counted.
func measure(r Round, nodes []*corev1.Node, movable func(*corev1.Pod) bool) fleet {
	f := fleet{nodes: nodes}
	for _, node := range nodes {
		row := rebalance.Node{Allocatable: convert.Named(node.Status.Allocatable), Used: amount.List{}}
		var pods []*corev1.Pod
		bound := false
		for _, pod := range r.Pods(node.Name) {
			if ended(pod) {
				continue
			}
			requests := convert.Named(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
			requests["pods"] = 1
			row.Used.Add(requests)
			fixed := ownedBy(pod, []string{"DaemonSet", "Node"})
			if !fixed && !movable(pod) {
				bound = true
				continue
			}
			pods = append(pods, pod)
			row.Pods = append(row.Pods, rebalance.Pod{Requests: requests, Fixed: fixed})
		}
		f.pods, f.rows, f.bound = append(f.pods, pods), append(f.rows, row), append(f.bound, bound)
	}
	return f
}

// takes reports whether new pods can be scheduled to a node at all.
func takes(node *corev1.Node) bool { return !node.Spec.Unschedulable }

// target selects by the arguments that plugins of Koordinator have.
type target struct{ descheduler.Target }

// pod reports whether a pod is of the target.
func (t target) pod(p *corev1.Pod) bool {
	selected := len(t.PodSelectors) == 0 || slices.ContainsFunc(t.PodSelectors, func(s descheduler.PodSelector) bool {
		return selector(s.Selector).Matches(labels.Set(p.Labels))
	})
	return selected && inNamespaces(t.EvictableNamespaces, p.Namespace)
}

func (t target) selectNodes(nodes []*corev1.Node) []*corev1.Node {
	selected := selector(t.NodeSelector)
	return slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		return !selected.Matches(labels.Set(n.Labels))
	})
}

// balance is a BalancePlugin of one function.
type balance struct {
	name string
	run  func(ctx context.Context, nodes []*corev1.Node) error
}

func (b balance) Name() string { return b.name }

func (b balance) Balance(ctx context.Context, nodes []*corev1.Node) *Status {
	if err := b.run(ctx, nodes); err != nil {
		return &Status{err}
	}
	return nil
}

// targeted returns a BalancePlugin with a target. run gets the nodes of the target, and is not called while the plugin
// is paused.
func targeted(name string, given descheduler.Target,
	run func(ctx context.Context, t target, nodes []*corev1.Node) error,
) Plugin {
	t := target{given}
	return balance{name, func(ctx context.Context, nodes []*corev1.Node) error {
		if t.Paused {
			return nil
		}
		return run(ctx, t, t.selectNodes(nodes))
	}}
}

// utilization selects the pods that LowNodeUtilization and HighNodeUtilization move.
func utilization(r Round, spaces descheduler.Namespaces, modes []string, limits descheduler.Percentages,
) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		requests := convert.Named(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))
		asks := len(modes) == 0
		for name := range limits {
			asks = asks || requests[name] > 0
		}
		return asks && inNamespaces(spaces, p.Namespace) && r.Movable(p)
	}
}

// newLowNodeUtilization moves pods from nodes that are used much to nodes that are used little.
func newLowNodeUtilization(a *descheduler.LowNodeUtilizationArgs, r Round) Plugin {
	return balance{"LowNodeUtilization", func(ctx context.Context, nodes []*corev1.Node) error {
		f := measure(r, nodes, utilization(r, a.EvictableNamespaces, a.EvictionModes, a.Thresholds))
		low, high := rebalance.Percentages(a.Thresholds), rebalance.Percentages(a.TargetThresholds)
		if a.UseDeviationThresholds {
			below := rebalance.Percentages{}
			for name, distance := range low {
				below[name] = -distance
			}
			low, high = rebalance.Means(f.rows, below), rebalance.Means(f.rows, high)
		}
		plan := rebalance.Plan{
			Nodes: f.rows, Limits: func(int) rebalance.Percentages { return high },
			Until: func(n *rebalance.Node) bool { return !n.Above(high) },
			Rank:  func(i int) float64 { return f.rows[i].Most(high) },
		}
		for i := range f.rows {
			switch {
			case f.rows[i].Below(low) && takes(nodes[i]):
				plan.Targets = append(plan.Targets, i)
			case f.rows[i].Above(high):
				plan.Sources = append(plan.Sources, i)
			}
		}
		if len(plan.Targets) <= int(a.NumberOfNodes) {
			return nil
		}
		slices.SortStableFunc(plan.Sources, f.busiest(high))
		moved := map[int]int32{}
		plan.Run(func(source, pod, _ int) bool {
			if most := a.EvictionLimits.Node; most != nil && moved[source] >= *most {
				return false
			}
			if !r.Move(ctx, f.pods[source][pod], fmt.Sprintf("node %s is used above targetThresholds",
				nodes[source].Name)) {
				return false
			}
			moved[source]++
			return true
		})
		return nil
	}}
}

// busiest orders nodes by the use of their most used resource, the highest first.
func (f fleet) busiest(resources rebalance.Percentages) func(a, b int) int {
	return func(a, b int) int { return cmp.Compare(f.rows[b].Most(resources), f.rows[a].Most(resources)) }
}

// newHighNodeUtilization moves pods from nodes that are used little to the others, the fullest first.
func newHighNodeUtilization(a *descheduler.HighNodeUtilizationArgs, r Round) Plugin {
	return balance{"HighNodeUtilization", func(ctx context.Context, nodes []*corev1.Node) error {
		f := measure(r, nodes, utilization(r, a.EvictableNamespaces, a.EvictionModes, a.Thresholds))
		low := rebalance.Percentages(a.Thresholds)
		plan := rebalance.Plan{
			Nodes: f.rows, Limits: func(int) rebalance.Percentages { return nil },
			Rank: func(i int) float64 { return -f.rows[i].Most(low) },
		}
		for i := range f.rows {
			switch {
			case f.rows[i].Below(low):
				plan.Sources = append(plan.Sources, i)
			case takes(nodes[i]):
				plan.Targets = append(plan.Targets, i)
			}
		}
		if len(plan.Sources) <= int(a.NumberOfNodes) {
			return nil
		}
		slices.SortStableFunc(plan.Sources, func(a, b int) int { return f.busiest(low)(b, a) })
		plan.Run(func(source, pod, _ int) bool {
			return r.Move(ctx, f.pods[source][pod], fmt.Sprintf("node %s is used below thresholds", nodes[source].Name))
		})
		return nil
	}}
}

// newFragmentationAware moves pods from nodes that have much of one resource left and little of another.
func newFragmentationAware(a *descheduler.FragmentationAwareArgs, r Round) Plugin {
	return targeted("FragmentationAware", a.Target, func(ctx context.Context, t target, nodes []*corev1.Node) error {
		f := measure(r, nodes, func(p *corev1.Pod) bool { return t.pod(p) && r.Movable(p) })
		index := map[string]int{}
		for i, node := range nodes {
			index[node.Name] = i
		}
		for i := range f.rows {
			f.even(ctx, a, r, i, index)
		}
		return nil
	})
}

// even moves pods from one node, the one with the largest fall of the imbalance first.
func (f fleet) even(ctx context.Context, a *descheduler.FragmentationAwareArgs, r Round, i int, index map[string]int) {
	row, tried := &f.rows[i], map[int]bool{}
	for rebalance.Imbalance(row.Used, row.Allocatable, a.Resources) >= a.ImbalanceThreshold {
		falls, best := rebalance.Falls(row, a.Resources), -1
		for p, fall := range falls {
			if !tried[p] && !row.Pods[p].Fixed && fall >= a.MinImprovementThreshold && (best < 0 ||
				fall > falls[best]) {
				best = p
			}
		}
		if best < 0 {
			return
		}
		tried[best] = true
		pod, requests, to := f.pods[i][best], row.Pods[best].Requests, (*rebalance.Node)(nil)
		if a.NodeFit {
			node := r.Fit(ctx, pod, f.nodes)
			if node == nil {
				continue
			}
			// Where it would go, it must do less harm than it does here.
			to = &f.rows[index[node.Name]]
			if f.rise(to, requests, a.Resources) > falls[best]-a.MinImprovementThreshold {
				continue
			}
		}
		if !r.Move(ctx, pod, fmt.Sprintf("the resources of node %s are used unevenly", f.nodes[i].Name)) {
			continue
		}
		if row.Used.Take(requests); to != nil {
			to.Used.Add(requests)
		}
	}
}

// rise returns by how much the imbalance of a node rises with a pod.
func (fleet) rise(n *rebalance.Node, requests amount.List, resources []string) float64 {
	with := amount.List{}
	for _, name := range resources {
		with[name] = n.Used[name] + requests[name]
	}
	return rebalance.Imbalance(with, n.Allocatable, resources) - rebalance.Imbalance(n.Used, n.Allocatable, resources)
}

// newScaleDownBinPack has ReplicaSets delete pods of the emptiest nodes first, or moves these pods.
func newScaleDownBinPack(a *descheduler.ScaleDownBinPackArgs, r Round) Plugin {
	return targeted("ScaleDownBinPack", a.Target, func(ctx context.Context, t target, nodes []*corev1.Node) error {
		moves := a.Strategy == "EvictDirectly"
		f := measure(r, nodes, func(p *corev1.Pod) bool { return t.pod(p) && (!moves || r.Movable(p)) })
		if moves {
			f.pack(ctx, a, r)
			return nil
		}
		for i := range nodes {
			// From -101 for an empty node to -1 for a full one: lower than the 0 of pods without a cost, in steps of 5.
			cost := int32(f.mean(a, i)/5)*5 - 101
			for _, pod := range f.pods[i] {
				if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || owner.Kind != "ReplicaSet" {
					continue
				}
				if err := r.SetDeletionCost(ctx, pod, cost); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// mean returns the use of a node in percent, by the weights of resources.
func (f fleet) mean(a *descheduler.ScaleDownBinPackArgs, i int) float64 {
	var used, weights float64
	for _, name := range a.Resources {
		weight, ok := a.ResourceWeights[name]
		if !ok {
			weight = 1
		}
		used, weights = used+weight*min(f.rows[i].Use(name), 100), weights+weight
	}
	return used / max(weights, 1e-9)
}

// pack moves pods from the emptiest node that has any, to the fullest that hold them.
func (f fleet) pack(ctx context.Context, a *descheduler.ScaleDownBinPackArgs, r Round) {
	source := -1
	for i := range f.rows {
		if slices.ContainsFunc(f.rows[i].Pods, func(p rebalance.Pod) bool { return !p.Fixed }) &&
			(source < 0 || f.mean(a, i) < f.mean(a, source)) {
			source = i
		}
	}
	if source < 0 {
		return
	}
	plan := rebalance.Plan{
		Nodes: f.rows, Sources: []int{source}, Limits: func(int) rebalance.Percentages { return nil },
		Rank: func(i int) float64 { return -f.mean(a, i) },
	}
	for i, node := range f.nodes {
		if i != source && takes(node) {
			plan.Targets = append(plan.Targets, i)
		}
	}
	moved := int32(0)
	plan.Run(func(source, pod, _ int) bool {
		if a.MaxPodsToEvict != nil && moved >= *a.MaxPodsToEvict {
			return false
		}
		if !r.Move(ctx, f.pods[source][pod], fmt.Sprintf("node %s is the emptiest one", f.nodes[source].Name)) {
			return false
		}
		moved++
		return true
	})
}

// newCustomPriority moves pods from groups of nodes to later ones, which are cheaper.
func newCustomPriority(a *descheduler.CustomPriorityArgs, r Round) Plugin {
	return targeted("CustomPriority", a.Target, func(ctx context.Context, t target, nodes []*corev1.Node) error {
		f := measure(r, nodes, func(p *corev1.Pod) bool { return t.pod(p) && r.Movable(p) })
		group := make([]int, len(nodes)) // -1 for a node of none
		for i, node := range nodes {
			group[i] = slices.IndexFunc(a.EvictionOrder, func(g descheduler.NodeGroup) bool {
				return selector(g.NodeSelector).Matches(labels.Set(node.Labels))
			})
		}
		for g, from := range a.EvictionOrder {
			keep := rebalance.Percentages(from.KeepThreshold)
			plan := rebalance.Plan{
				Nodes: f.rows, Whole: a.Mode == "DrainNode",
				Limits: func(i int) rebalance.Percentages {
					return rebalance.Percentages(a.EvictionOrder[group[i]].RejectThreshold)
				},
				// The cheapest group first, and in it the fullest node.
				Rank: func(i int) float64 { return -1000*float64(group[i]) - f.rows[i].Use("cpu") },
			}
			for i, node := range nodes {
				switch {
				case plan.Whole && f.bound[i] && group[i] == g:
				case group[i] == g && (len(keep) == 0 || f.rows[i].Below(keep)):
					plan.Sources = append(plan.Sources, i)
				case group[i] > g && takes(node):
					plan.Targets = append(plan.Targets, i)
				}
			}
			plan.Run(func(source, pod, to int) bool {
				p := f.pods[source][pod]
				cheaper := slices.Clone(nodes)
				cheaper = slices.DeleteFunc(cheaper, func(n *corev1.Node) bool {
					return group[slices.Index(nodes, n)] != group[to]
				})
				if a.NodeFit && r.Fit(ctx, p, cheaper) == nil {
					return false
				}
				return r.Move(ctx, p, fmt.Sprintf("group %s is cheaper than %s",
					a.EvictionOrder[group[to]].Name, from.Name))
			})
		}
		return nil
	})
}
