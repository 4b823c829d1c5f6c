package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/rebalance"
)

// newDuplicates moves pods of a workload that share a node while other nodes have fewer.
func newDuplicates(a *descheduler.DuplicatesArgs, r Round) Plugin {
	return balance{"RemoveDuplicates", func(ctx context.Context, nodes []*corev1.Node) error {
		groups := map[string][][]*corev1.Pod{} // by workload and images: the pods of each node
		for i, node := range nodes {
			for _, pod := range r.Pods(node.Name) {
				owner := metav1.GetControllerOfNoCopy(pod)
				if owner == nil || owner.Kind == "DaemonSet" || ownedBy(pod, a.ExcludeOwnerKinds) || ended(pod) ||
					!inNamespaces(a.Namespaces, pod.Namespace) {
					continue
				}
				images := []string{string(owner.UID)}
				for _, c := range pod.Spec.Containers {
					images = append(images, c.Image)
				}
				slices.Sort(images[1:])
				key := pod.Namespace + "/" + owner.Name + " " + strings.Join(images, " ")
				if groups[key] == nil {
					groups[key] = make([][]*corev1.Pod, len(nodes))
				}
				groups[key][i] = append(groups[key][i], pod)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(groups)) {
			spreadOut(ctx, r, groups[key], nodes)
		}
		return nil
	}}
}

// spreadOut moves the pods of one workload that are above the share of their node.
func spreadOut(ctx context.Context, r Round, group [][]*corev1.Pod, nodes []*corev1.Node) {
	counts, places := make([]int, len(nodes)), 0
	var one *corev1.Pod
	for i := range group {
		if counts[i] = len(group[i]); counts[i] > 0 {
			one = group[i][0]
		}
	}
	for i, node := range nodes {
		if counts[i] > 0 || could(ctx, one, node) {
			places++
		}
	}
	for i, leaving := range rebalance.Surplus(counts, places) {
		reason := fmt.Sprintf("node %s has %d pods of the workload, and %d nodes could share them", nodes[i].Name,
			counts[i],
			places)
		moveSome(ctx, r, group[i], leaving, reason)
	}
}

// could reports whether a node takes pods like this one, but for room.
func could(ctx context.Context, pod *corev1.Pod, node *corev1.Node) bool {
	return takes(node) && matches(pod, node) && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(ctx, pod, t)
	})
}

// moveSome moves so many of some pods, or as many as the evictors accept.
func moveSome(ctx context.Context, r Round, pods []*corev1.Pod, n int, reason string) {
	for _, pod := range pods {
		if n > 0 && r.Move(ctx, pod, reason) {
			n--
		}
	}
}

// constraint is a topology spread constraint of pods in a namespace, with what a first pod of them asks of nodes.
type constraint struct {
	corev1.TopologySpreadConstraint

	namespace string
	pod       *corev1.Pod
}

// newTopologySpread moves pods from domains that have more of them than a constraint allows.
func newTopologySpread(a *descheduler.TopologySpreadArgs, r Round) Plugin {
	scope := among(a.Scope)
	return balance{"RemovePodsViolatingTopologySpreadConstraint", func(ctx context.Context,
		nodes []*corev1.Node,
	) error {
		all := map[string]constraint{}
		for _, node := range nodes {
			for _, pod := range r.Pods(node.Name) {
				for _, c := range pod.Spec.TopologySpreadConstraints {
					if slices.Contains(a.Constraints, string(c.WhenUnsatisfiable)) && scope(pod) && !ended(pod) {
						all[keyOf(pod, c)] = constraint{withLabels(c, pod), pod.Namespace, pod}
					}
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(all)) {
			c := all[key]
			c.satisfy(ctx, r, nodes, func(p *corev1.Pod) bool {
				return slices.ContainsFunc(p.Spec.TopologySpreadConstraints,
					func(o corev1.TopologySpreadConstraint) bool {
						return keyOf(p, o) == key
					})
			}, a.TopologyBalanceNodeFit)
		}
		return nil
	}}
}

// withLabels adds what matchLabelKeys says of the pod to the selector.
func withLabels(c corev1.TopologySpreadConstraint, pod *corev1.Pod) corev1.TopologySpreadConstraint {
	c = *c.DeepCopy()
	if len(c.MatchLabelKeys) == 0 || c.LabelSelector == nil {
		return c
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			c.LabelSelector.MatchExpressions = append(c.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
			})
		}
	}
	return c
}

// keyOf is equal for pods that have the same constraint and ask the same of nodes.
func keyOf(pod *corev1.Pod, c corev1.TopologySpreadConstraint) string {
	c = withLabels(c, pod)
	return fmt.Sprintf("%s %s %v %v %v %v", pod.Namespace, c.String(), pod.Spec.NodeSelector,
		pod.Spec.Affinity.String(),
		pod.Spec.Tolerations, c.LabelSelector)
}

// eligible reports whether the domain of a node counts.
func (c constraint) eligible(ctx context.Context, node *corev1.Node) bool {
	_, ok := node.Labels[c.TopologyKey]
	affinity := c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	taints := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	return ok && (!affinity || matches(c.pod, node)) && (!taints || could(ctx, c.pod, node))
}

// satisfy moves pods that have the constraint from domains with too many that it selects.
func (c constraint) satisfy(ctx context.Context, r Round, nodes []*corev1.Node, has func(*corev1.Pod) bool, fit bool) {
	selected := labels.Nothing()
	if c.LabelSelector != nil {
		selected = selector(c.LabelSelector)
	}
	members, pods := map[string][]*corev1.Node{}, map[string][]*corev1.Pod{}
	counts := map[string]int{}
	for _, node := range nodes {
		if !c.eligible(ctx, node) {
			continue
		}
		domain := node.Labels[c.TopologyKey]
		members[domain] = append(members[domain], node)
		for _, pod := range r.Pods(node.Name) {
			if pod.Namespace == c.namespace && !ended(pod) && selected.Matches(labels.Set(pod.Labels)) {
				if counts[domain]++; has(pod) {
					pods[domain] = append(pods[domain], pod)
				}
			}
		}
	}
	domains := slices.Sorted(maps.Keys(members))
	numbers := make([]int, len(domains))
	for i, domain := range domains {
		numbers[i] = counts[domain]
	}
	least := 0
	if c.MinDomains != nil {
		least = int(*c.MinDomains)
	}
	leaving := rebalance.Spread(numbers, int(c.MaxSkew), least)
	var smaller []*corev1.Node
	for i, domain := range domains {
		if leaving[i] == 0 {
			smaller = append(smaller, members[domain]...)
		}
	}
	for i, domain := range domains {
		candidates := pods[domain]
		slices.SortFunc(candidates, Before)
		reason := fmt.Sprintf("%s %s has %d pods of a spread constraint with maxSkew %d", c.TopologyKey, domain,
			numbers[i],
			c.MaxSkew)
		for _, pod := range candidates {
			if leaving[i] > 0 && (!fit || r.Fit(ctx, pod, smaller) != nil) && r.Move(ctx, pod, reason) {
				leaving[i]--
			}
		}
	}
}
