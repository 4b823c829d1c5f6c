package sim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	apiquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"

	"github.com/tenon-project/tenon/internal/core/why"
)

// limitPods gives pods that are created what the LimitRanges of their namespaces default, and refuses those that exceed
// one, as the API server's admission does before it calls webhooks.
func (w *world) limitPods() {
	for _, list := range w.limitRanges {
		slices.SortFunc(list, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	}
	for i := range w.pending {
		entry := &w.pending[i]
		ranges := w.limitRanges[entry.Namespace]
		if entry.stored || len(ranges) == 0 {
			continue
		}
		internal, group := internalOf(entry.Pod).(*core.Pod), entry.Spec.SchedulingGroup
		for _, r := range ranges {
			utilruntime.Must(limitranger.PodMutateLimitFunc(r, internal)) // it has no error
		}
		var changed corev1.Pod
		utilruntime.Must(scheme().Convert(internal, &changed, nil))
		changed.Spec.SchedulingGroup = group
		*entry.Pod = changed
	}
}

// overLimit returns why the API server refuses a pod that the webhooks have accepted: a LimitRange, or a ResourceQuota
// with what the pods of its namespace use. A pod that is accepted counts for the pods after it.
func (w *world) overLimit(p *corev1.Pod) []Reason {
	refused := func(err error) []Reason {
		return []Reason{{Code: why.InvalidField, Message: oneLine(err)}}
	}
	for _, r := range w.limitRanges[p.Namespace] {
		if err := limitranger.PodValidateLimitFunc(r, internalOf(p).(*core.Pod)); err != nil {
			return refused(err)
		}
	}
	quotas := w.resourceQuotas[p.Namespace]
	if len(quotas) == 0 {
		return nil
	}
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	after, err := resourcequota.CheckRequest(quotas, apiadmission.NewAttributesRecord(p, nil,
		schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, p.Namespace, p.Name, resource, "", apiadmission.Create,
		nil, false, nil), w.podQuotas(), nil)
	if err != nil {
		return refused(err)
	}
	w.resourceQuotas[p.Namespace] = after
	return nil
}

func (w *world) podQuotas() apiquota.Evaluator {
	return quotacore.NewPodEvaluator(nil, &stepClock{now: w.latest()})
}

// countQuotas sets what the pods that exist use of the ResourceQuotas of their namespaces.
func (w *world) countQuotas() {
	pods := w.podQuotas()
	for namespace, quotas := range w.resourceQuotas {
		for i := range quotas {
			q := &quotas[i]
			q.Status.Hard, q.Status.Used = q.Spec.Hard.DeepCopy(), corev1.ResourceList{}
			for name, hard := range q.Spec.Hard {
				hard.Set(0)
				q.Status.Used[name] = hard
			}
			for _, entry := range slices.Concat(w.existing, w.pending) {
				if entry.Namespace != namespace || entry.Spec.NodeName == "" && !entry.stored {
					continue
				}
				if counts, err := pods.Matches(q, entry.Pod); err != nil || !counts {
					continue
				}
				use, err := pods.Usage(entry.Pod)
				utilruntime.Must(err) // it is a pod
				q.Status.Used = apiquota.Add(q.Status.Used, apiquota.Mask(use, apiquota.ResourceNames(q.Status.Hard)))
			}
		}
	}
}
