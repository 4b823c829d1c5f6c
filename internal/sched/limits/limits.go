package limits

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	apiquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/utils/clock"
)

// Limits are the LimitRanges and ResourceQuotas of one namespace. Not safe for concurrent use.
type Limits struct {
	// ranges are sorted by name: of two defaults the first one counts.
	ranges []*corev1.LimitRange
	// quotas have in their status what admitted objects use. Elements are replaced, never changed.
	quotas []corev1.ResourceQuota

	pods, claims apiquota.Evaluator
}

// New returns limits. The status of each ResourceQuota is what is used, unless Count counts it anew.
func New(ranges []*corev1.LimitRange, quotas []corev1.ResourceQuota, now clock.Clock) *Limits {
	byName := func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) }
	return &Limits{
		ranges: slices.SortedFunc(slices.Values(ranges), byName), quotas: slices.Clone(quotas),
		pods: quotacore.NewPodEvaluator(nil, now), claims: quotacore.NewPersistentVolumeClaimEvaluator(nil),
	}
}

// Default gives a pod what the LimitRanges default.
func (l *Limits) Default(p *corev1.Pod) {
	if len(l.ranges) == 0 {
		return
	}
	internal, group := internalPod(p), p.Spec.SchedulingGroup
	for _, r := range l.ranges {
		utilruntime.Must(limitranger.PodMutateLimitFunc(r, internal)) // it has no error
	}
	var changed corev1.Pod
	utilruntime.Must(corev1conversion.Convert_core_Pod_To_v1_Pod(internal, &changed, nil))
	changed.Spec.SchedulingGroup = group // a feature gate drops it
	*p = changed
}

// Admit returns why the API server refuses a pod; nil if it does not. Then the pod counts in the quotas.
func (l *Limits) Admit(p *corev1.Pod) error {
	after, err := l.admit(p)
	if err == nil {
		l.quotas = after
	}
	return err
}

// AdmitClaim is Admit for a claim.
func (l *Limits) AdmitClaim(c *corev1.PersistentVolumeClaim) error {
	var internal core.PersistentVolumeClaim
	utilruntime.Must(corev1conversion.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(c.DeepCopy(),
		&internal, nil))
	for _, r := range l.ranges {
		if err := limitranger.PersistentVolumeClaimValidateLimitFunc(r, &internal); err != nil {
			return err
		}
	}
	after, err := l.check(l.quotas, c, "PersistentVolumeClaim", l.claims)
	if err == nil {
		l.quotas = after
	}
	return err
}

// AdmitWithClaims is Admit for a pod and the claims that will be created for its ephemeral volumes, all or none.
func (l *Limits) AdmitWithClaims(p *corev1.Pod) error {
	before := l.quotas
	if err := l.Admit(p); err != nil {
		return err
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{Spec: v.Ephemeral.VolumeClaimTemplate.Spec}
		claim.Namespace, claim.Name = p.Namespace, p.Name+"-"+v.Name
		if err := l.AdmitClaim(claim); err != nil {
			l.quotas = before
			return fmt.Errorf("PersistentVolumeClaim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// Most returns how many pods equal to one, at most limit, are admitted one after the other, and why one more is not;
// nil for limit. None of them counts.
func (l *Limits) Most(p *corev1.Pod, limit int) (n int, refused error) {
	after, err := l.admit(p)
	if err != nil {
		return 0, err
	}
	// Each pod adds the same to each quota.
	with := func(n int) []corev1.ResourceQuota {
		out := slices.Clone(l.quotas)
		for i := range out {
			each := apiquota.Subtract(after[i].Status.Used, out[i].Status.Used)
			for name, amount := range each {
				amount.Mul(int64(n))
				each[name] = amount
			}
			out[i].Status.Used = apiquota.Add(out[i].Status.Used, each)
		}
		return out
	}
	one := func(n int) error {
		_, err := l.check(with(n), p, "Pod", l.pods)
		return err
	}
	if n = sort.Search(limit, func(n int) bool { return one(n) != nil }); n < limit {
		refused = one(n)
	}
	return n, refused
}

// Release takes a pod out of the quotas.
func (l *Limits) Release(p *corev1.Pod) {
	l.quotas = slices.Clone(l.quotas)
	for i := range l.quotas {
		q := &l.quotas[i]
		q.Status.Used = apiquota.Subtract(q.Status.Used, l.use(q, p, l.pods))
	}
}

// Count sets what is used to what some pods and claims use.
func (l *Limits) Count(pods []*corev1.Pod, claims []*corev1.PersistentVolumeClaim) {
	l.quotas = slices.Clone(l.quotas)
	for i := range l.quotas {
		q := &l.quotas[i]
		q.Status.Hard, q.Status.Used = q.Spec.Hard.DeepCopy(), corev1.ResourceList{}
		for name, hard := range q.Spec.Hard {
			hard.Set(0)
			q.Status.Used[name] = hard
		}
		for _, p := range pods {
			q.Status.Used = apiquota.Add(q.Status.Used, l.use(q, p, l.pods))
		}
		for _, c := range claims {
			q.Status.Used = apiquota.Add(q.Status.Used, l.use(q, c, l.claims))
		}
	}
}

// use returns what an object uses of a quota.
func (l *Limits) use(q *corev1.ResourceQuota, o runtime.Object, kind apiquota.Evaluator) corev1.ResourceList {
	if counts, err := kind.Matches(q, o); err != nil || !counts {
		return nil
	}
	use, err := kind.Usage(o)
	utilruntime.Must(err) // the object is of the evaluator's kind
	return apiquota.Mask(use, apiquota.ResourceNames(q.Status.Hard))
}

// admit returns the quotas with a pod, or why it is refused.
func (l *Limits) admit(p *corev1.Pod) ([]corev1.ResourceQuota, error) {
	for _, r := range l.ranges {
		if err := limitranger.PodValidateLimitFunc(r, internalPod(p)); err != nil {
			return nil, err
		}
	}
	return l.check(l.quotas, p, "Pod", l.pods)
}

// check returns quotas with an object, or which of them refuses it.
func (l *Limits) check(quotas []corev1.ResourceQuota, o runtime.Object, kind string, evaluator apiquota.Evaluator,
) ([]corev1.ResourceQuota, error) {
	if len(quotas) == 0 {
		return nil, nil
	}
	meta := o.(metav1.Object)
	return resourcequota.CheckRequest(quotas, admission.NewAttributesRecord(o, nil,
		corev1.SchemeGroupVersion.WithKind(kind), meta.GetNamespace(), meta.GetName(),
		evaluator.GroupResource().WithVersion("v1"), "", admission.Create, nil, false, nil), evaluator, nil)
}

// internalPod returns a copy of a pod in the form that the API server's own rules read.
func internalPod(p *corev1.Pod) *core.Pod {
	var out core.Pod
	utilruntime.Must(corev1conversion.Convert_v1_Pod_To_core_Pod(p.DeepCopy(), &out, nil)) // each pod has that form
	return &out
}
