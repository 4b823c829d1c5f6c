package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/config/descheduler"
)

// newNodeAffinity moves pods from nodes that do not match, or no longer match best, what the pods ask of nodes.
func newNodeAffinity(a *descheduler.NodeAffinityArgs, r Round) Plugin {
	required := slices.Contains(a.NodeAffinityType, "requiredDuringSchedulingIgnoredDuringExecution")
	preferred := slices.Contains(a.NodeAffinityType, "preferredDuringSchedulingIgnoredDuringExecution")
	violation := func(ctx context.Context, pod *corev1.Pod, node *corev1.Node, nodes []*corev1.Node) string {
		others := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
			return n.Name == node.Name || !matches(pod, n)
		})
		if required && !matches(pod, node) && len(others) > 0 {
			return fmt.Sprintf("node %s does not match the pod's node selector or required node affinity", node.Name)
		}
		if !preferred || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
			return ""
		}
		terms, err := nodeaffinity.NewPreferredSchedulingTerms(
			pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			return "" // such a pod would not be scheduled
		}
		better := slices.DeleteFunc(others, func(n *corev1.Node) bool { return terms.Score(n) <= terms.Score(node) })
		if len(better) == 0 || r.Fit(ctx, pod, better) == nil {
			return ""
		}
		return fmt.Sprintf("other nodes match the pod's preferred node affinity better than node %s", node.Name)
	}
	return podRule{"RemovePodsViolatingNodeAffinity", r, among(a.Scope), violation}
}

// matches reports whether a node has what the pod requires of it. What cannot be read matches: the pod stays.
func matches(pod *corev1.Pod, node *corev1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return ok || err != nil
}

// newNodeTaints moves pods from nodes whose taints they do not tolerate.
func newNodeTaints(a *descheduler.NodeTaintsArgs, r Round) Plugin {
	violation := func(ctx context.Context, pod *corev1.Pod, node *corev1.Node, _ []*corev1.Node) string {
		for _, taint := range node.Spec.Taints {
			// Kubernetes itself evicts for NoExecute.
			counts := taint.Effect == corev1.TaintEffectNoSchedule ||
				a.IncludePreferNoSchedule && taint.Effect == corev1.TaintEffectPreferNoSchedule
			listed := len(a.IncludedTaints) == 0 || named(taint, a.IncludedTaints)
			if counts && listed && !named(taint, a.ExcludedTaints) && !tolerated(ctx, pod, taint) {
				return fmt.Sprintf("the pod does not tolerate the taint %s of node %s", taint.ToString(), node.Name)
			}
		}
		return ""
	}
	return podRule{"RemovePodsViolatingNodeTaints", r, among(a.Scope), violation}
}

func tolerated(ctx context.Context, pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.FromContext(ctx), &taint, true)
	})
}

// named reports whether a list has the taint as KEY or KEY=VALUE.
func named(taint corev1.Taint, list []string) bool {
	return slices.ContainsFunc(list, func(text string) bool {
		key, value, both := strings.Cut(text, "=")
		return key == taint.Key && (!both || value == taint.Value)
	})
}
