package convert

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
)

// QuotaPod is what the account of quotas reads of a pod that asks for amounts.
func QuotaPod(p *corev1.Pod, amounts quota.Amounts) quota.Pod {
	out := quota.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Quota: p.Labels[annotation.QuotaName],
		Amounts: amounts, NonPreemptible: !IsPreemptible(p), Node: p.Spec.NodeName,
		Leaving: p.DeletionTimestamp != nil, Nominated: p.Status.NominatedNodeName != "",
		Room: IsReservePod(p),
	}
	if _, name, _ := gangName(p); name != "" {
		out.Gang, _ = gangID(p.Namespace, name) // one that cannot be read is a gang as well
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	if p.Status.StartTime != nil {
		out.Start = p.Status.StartTime.Time
	}
	return out
}

// QuotaText writes an amount as a quantity.
func QuotaText(dimension string, n int64) string {
	q := ResourceList(quota.Amounts{dimension: n})[corev1.ResourceName(dimension)]
	return q.String()
}

// UnitOf returns the unit of amounts of a resource.
func UnitOf(dimension string) why.Unit {
	switch {
	case dimension == string(why.CPU):
		return why.MilliCPU
	case IsBytes(dimension):
		return why.Bytes
	}
	return why.Count
}

// IsBytes reports whether amounts of a resource are bytes.
func IsBytes(dimension string) bool {
	return strings.HasSuffix(dimension, "memory") || strings.HasSuffix(dimension, "storage") ||
		strings.HasPrefix(dimension, corev1.ResourceHugePagesPrefix)
}
