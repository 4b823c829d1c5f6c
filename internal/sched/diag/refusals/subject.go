package refusals

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// subject names what a rule of upstream refused a node for, which its text leaves out: taints, selectors, ports. cordon
// is true for the taint of a cordoned node, which NodeUnschedulable refuses too: that is one cause.
func subject(pod *corev1.Pod, node fwk.NodeInfo, plugin string) (about string, cordon bool) {
	switch plugin {
	case names.TaintToleration:
		return taints(pod, node.Node())
	case names.NodeAffinity:
		return selectors(pod, node.Node()), false
	case names.NodePorts:
		return ports(pod, node), false
	}
	return "", false
}

// taints names the taints of a node that a pod does not tolerate. cordon is true if the only one is that of a cordon.
func taints(pod *corev1.Pod, node *corev1.Node) (about string, cordon bool) {
	var named []string
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule ||
			corev1helpers.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &taint, true) {
			continue
		}
		if taint.Key == corev1.TaintNodeUnschedulable && node.Spec.Unschedulable {
			cordon = true
			continue
		}
		named = append(named, taint.ToString())
	}
	return strings.Join(named, ", "), cordon && len(named) == 0
}

// selectors names the labels that the pod's node selector requires and the node lacks; if it has all of these, the
// requirements of the pod's node affinity that the node does not meet.
func selectors(pod *corev1.Pod, node *corev1.Node) string {
	var named []string
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if value := pod.Spec.NodeSelector[key]; node.Labels[key] != value {
			named = append(named, key+"="+value)
		}
	}
	if a := pod.Spec.Affinity; len(named) == 0 && a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, r := range term.MatchExpressions {
				named = append(named, unmatched(node, r,
					corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{r}})...)
			}
			for _, r := range term.MatchFields {
				named = append(named, unmatched(node, r,
					corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{r}})...)
			}
		}
	}
	slices.Sort(named)
	return strings.Join(slices.Compact(named), ", ")
}

// unmatched returns the requirement, which is the only one of term, unless the node meets it.
func unmatched(node *corev1.Node, r corev1.NodeSelectorRequirement, term corev1.NodeSelectorTerm) []string {
	selector, err := nodeaffinity.NewNodeSelector(
		&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}})
	if err != nil || selector.Match(node) {
		return nil
	}
	return []string{strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, "|")))}
}

// ports names the host ports of a pod that are in use on a node.
func ports(pod *corev1.Pod, node fwk.NodeInfo) string {
	var named []string
	for _, p := range schedpod.HostPorts(pod) {
		if node.GetUsedPorts().CheckConflict(p.HostIP, string(p.Protocol), p.HostPort) {
			named = append(named, fmt.Sprintf("%d/%s", p.HostPort, p.Protocol))
		}
	}
	return strings.Join(named, ", ")
}
