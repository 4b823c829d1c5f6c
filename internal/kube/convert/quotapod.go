package convert

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// Labels and the annotation of a Pod that name its gang, the first one found counts.
const (
	podGroupLabel      = "pod-group.scheduling.sigs.k8s.io"
	communityGroup     = "scheduling.x-k8s.io/pod-group"
	lightweightGroup   = "pod-group.scheduling.sigs.k8s.io/name"
	gangNameAnnotation = "gang.scheduling.koordinator.sh/name"
)

// QuotaPod is what the account of quotas reads of a pod that asks for amounts.
func QuotaPod(p *corev1.Pod, amounts quota.Amounts) quota.Pod {
	out := quota.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Quota: p.Labels[annotation.QuotaName],
		Amounts:        amounts,
		NonPreemptible: !IsPreemptible(p), Gang: GangOf(p), Node: p.Spec.NodeName,
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	if p.Status.StartTime != nil {
		out.Start = p.Status.StartTime.Time
	}
	return out
}

// GangOf identifies the gang of a pod in the cluster: its namespace and name; empty without one. The pod's own field
// comes first, then labels, then the annotation.
func GangOf(p *corev1.Pod) string {
	name, _, _ := annotation.Lookup(p.Labels, podGroupLabel, communityGroup, lightweightGroup)
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		name = *g.PodGroupName
	}
	if name = cmp.Or(name, p.Annotations[gangNameAnnotation]); name == "" {
		return ""
	}
	return p.Namespace + "/" + name
}

// QuotaText writes an amount as a quantity.
func QuotaText(dimension string, n int64) string {
	q := ResourceList(quota.Amounts{dimension: n})[corev1.ResourceName(dimension)]
	return q.String()
}

// IsBytes reports whether amounts of a resource are bytes.
func IsBytes(dimension string) bool {
	return strings.HasSuffix(dimension, "memory") || strings.HasSuffix(dimension, "storage") ||
		strings.HasPrefix(dimension, corev1.ResourceHugePagesPrefix)
}
