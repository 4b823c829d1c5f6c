package convert

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// What Kueue writes to what it admits, apart from pod groups.
const (
	// KueueQueue is a label of an object: the LocalQueue that admits it.
	KueueQueue = "kueue.x-k8s.io/queue-name"
	// kueueManaged is a label of plain pods, kueuePodSet one of the pods of other objects.
	kueueManaged = "kueue.x-k8s.io/managed"
	kueuePodSet  = "kueue.x-k8s.io/podset"
	// kueueWorkload is an annotation of pods: the Workload that was admitted for them.
	kueueWorkload = "kueue.x-k8s.io/workload"
	// kueueGates is how the names of its scheduling gates begin.
	kueueGates = "kueue.x-k8s.io/"
	// kueueTopologies are annotations of pods that ask Kueue for a domain of the network.
	kueueTopologies = "kueue.x-k8s.io/podset-"
)

// KueueAdmits reports whether the quota of a pod is counted by Kueue.
func KueueAdmits(p *corev1.Pod) bool {
	return p.Labels[KueueQueue] != "" || p.Labels[kueueManaged] == "true" || p.Labels[kueuePodSet] != "" ||
		p.Annotations[kueueWorkload] != "" || slices.ContainsFunc(p.Spec.SchedulingGates,
		func(g corev1.PodSchedulingGate) bool { return strings.HasPrefix(g.Name, kueueGates) })
}

// KueueWorkload returns the name of the Workload that Kueue admitted for a pod; "" for none.
func KueueWorkload(p *corev1.Pod) string { return p.Annotations[kueueWorkload] }

// KueueNode returns the node that the topology-aware scheduling of Kueue chose for a pod; "" for none.
func KueueNode(p *corev1.Pod) string {
	for key := range p.Annotations {
		if strings.HasPrefix(key, kueueTopologies) && strings.HasSuffix(key, "-topology") && KueueAdmits(p) {
			return p.Spec.NodeSelector[corev1.LabelHostname]
		}
	}
	return ""
}

// kueueGroupSize returns how many pods start together with one of a pod group of Kueue; 0 for other pods, and for those
// that start one by one.
func kueueGroupSize(p *corev1.Pod) int {
	if p.Labels[annotation.KueueGroup] == "" || p.Labels[annotation.GangLabel] == "off" ||
		p.Annotations[annotation.KueueGroupServing] == "true" || p.Annotations[annotation.KueueGroupFast] == "true" ||
		p.Annotations[volcanoGroup] != "" {
		return 0
	}
	n, _, _ := annotation.ParseMembers(p.Annotations[annotation.KueueGroupTotal]) // Kueue refuses what is not a number
	return n
}
