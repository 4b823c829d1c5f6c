package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/config/descheduler"
)

// antiAffinity moves pods that a required anti-affinity of another pod keeps away from where they are.
type antiAffinity struct {
	round Round
	scope func(*corev1.Pod) bool
}

func newAntiAffinity(a *descheduler.InterPodAntiAffinityArgs, r Round) Plugin {
	return antiAffinity{r, among(a.Scope)}
}

func (antiAffinity) Name() string { return "RemovePodsViolatingInterPodAntiAffinity" }

// repulsion is a pod on its node, with a term of its required anti-affinity.
type repulsion struct {
	pod  *corev1.Pod
	node *corev1.Node
	term corev1.PodAffinityTerm
}

// Deschedule moves the pod of a lower priority first: it may be that no other is to be moved then.
func (p antiAffinity) Deschedule(ctx context.Context, nodes []*corev1.Node) *Status {
	terms := map[string][]repulsion{} // by topology key and value
	var all []repulsion               // all pods of the scope, without a term
	for _, node := range nodes {
		for _, pod := range p.round.Pods(node.Name) {
			if !ended(pod) && p.scope(pod) {
				all = append(all, repulsion{pod: pod, node: node})
			}
			if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && !ended(pod) {
				for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
					if value, ok := node.Labels[term.TopologyKey]; ok {
						place := term.TopologyKey + "=" + value
						terms[place] = append(terms[place], repulsion{pod, node, term})
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b repulsion) int { return Before(a.pod, b.pod) })
	moved := map[*corev1.Pod]bool{}
	for _, one := range all {
		for _, key := range slices.Sorted(maps.Keys(one.node.Labels)) {
			place := key + "=" + one.node.Labels[key]
			i := slices.IndexFunc(terms[place], func(r repulsion) bool { return !moved[r.pod] && r.repels(one.pod) })
			if i < 0 {
				continue
			}
			other := terms[place][i].pod
			moved[one.pod] = p.round.Move(ctx, one.pod,
				fmt.Sprintf("the anti-affinity of pod %s/%s forbids it where %s",
					other.Namespace, other.Name, place))
			break
		}
	}
	return nil
}

// repels reports whether the term is about a pod. Which namespaces a selector selects is not known here: it adds none,
// unless it is empty and adds all.
func (r repulsion) repels(pod *corev1.Pod) bool {
	spaces := r.term.Namespaces
	if len(spaces) == 0 && r.term.NamespaceSelector == nil {
		spaces = []string{r.pod.Namespace}
	}
	all := r.term.NamespaceSelector != nil && selector(r.term.NamespaceSelector).Empty()
	return r.pod.UID != pod.UID && (all || slices.Contains(spaces, pod.Namespace)) && r.term.LabelSelector != nil &&
		selector(r.term.LabelSelector).Matches(labels.Set(pod.Labels))
}

// Priority returns the priority of a pod.
func Priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
