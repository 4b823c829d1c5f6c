package sim

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/limits"
)

// limitsOf returns the LimitRanges and ResourceQuotas of a namespace.
func (w *world) limitsOf(namespace string) *limits.Limits {
	l := w.limits[namespace]
	if l == nil {
		l = limits.New(w.limitRanges[namespace], w.resourceQuotas[namespace], &stepClock{now: w.latest()})
		w.limits[namespace] = l
	}
	return l
}

// limitPods gives pods that are created what the LimitRanges of their namespaces default.
func (w *world) limitPods() {
	for i := range w.pending {
		if entry := &w.pending[i]; !entry.stored {
			w.limitsOf(entry.Namespace).Default(entry.Pod)
		}
	}
}

// overLimit returns why the API server refuses a pod that the webhooks have accepted: a LimitRange, or a ResourceQuota
// with what the pods of its namespace use. A pod that is accepted counts for the pods after it.
func (w *world) overLimit(p *corev1.Pod) []Reason {
	if err := w.limitsOf(p.Namespace).Admit(p); err != nil {
		return []Reason{{Code: why.AdmissionRefused, Message: oneLine(err)}}
	}
	return nil
}

// countQuotas sets what the pods and claims that exist use of the ResourceQuotas of their namespaces. Claims that are
// created count after them, and those that a LimitRange or ResourceQuota refuses do not exist.
func (w *world) countQuotas() {
	w.refusedClaims = map[string]string{}
	stored := map[string][]*corev1.PersistentVolumeClaim{}
	for _, key := range slices.Sorted(maps.Keys(w.claims)) {
		if c := w.claims[key]; !w.created.Has(key) {
			stored[c.Namespace] = append(stored[c.Namespace], c)
		}
	}
	for namespace := range w.resourceQuotas {
		var pods []*corev1.Pod
		for _, entry := range slices.Concat(w.existing, w.pending) {
			if entry.Namespace == namespace && (entry.Spec.NodeName != "" || entry.stored) {
				pods = append(pods, entry.Pod)
			}
		}
		w.limitsOf(namespace).Count(pods, stored[namespace])
	}
	for _, key := range sets.List(w.created) {
		c := w.claims[key]
		if err := w.limitsOf(c.Namespace).AdmitClaim(c); err != nil {
			w.refusedClaims[key] = oneLine(err)
		}
	}
}

// refusedClaim says which claim of a pod the API server refuses; "" for none.
func (w *world) refusedClaim(p *corev1.Pod) string {
	for _, key := range claimsOf(p) {
		if text := w.refusedClaims[key]; text != "" {
			return "PersistentVolumeClaim " + key + ": " + text
		}
	}
	for _, key := range convert.ClaimsOf(p) {
		c := w.resourceClaims[key]
		if c == nil || c.Status.Allocation != nil ||
			w.namespace(p.Namespace).Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
			continue
		}
		for i, r := range c.Spec.Devices.Requests {
			if r.Exactly != nil && ptr.Deref(r.Exactly.AdminAccess, false) {
				return fmt.Sprintf("ResourceClaim %s: spec.devices.requests[%d].exactly.adminAccess: must not be "+
					"set unless namespace %s has the label %s: true", key, i, p.Namespace,
					resourcev1.DRAAdminNamespaceLabelKey)
			}
		}
	}
	return ""
}
