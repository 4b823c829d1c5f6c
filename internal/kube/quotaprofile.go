package kube

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/big"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// ProfileQuota returns the quota that a profile asks for: the top of a tree of its own.
func ProfileQuota(profile *quotav1alpha1.ElasticQuotaProfile, nodes []*corev1.Node, now time.Time,
) (*v1alpha1.ElasticQuota, error) {
	selector, err := metav1.LabelSelectorAsSelector(profile.Spec.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("nodeSelector: %w", err)
	}
	ratio, ok := new(big.Rat).SetString(*cmp.Or(profile.Spec.ResourceRatio, new("1")))
	if !ok || ratio.Sign() < 0 {
		return nil, fmt.Errorf("resourceRatio %q: must be a decimal number, 0 or more", *profile.Spec.ResourceRatio)
	}
	keys := annotation.Names{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}
	if text, given := profile.Annotations[annotation.QuotaResourceKeys]; given {
		if keys, _, err = annotation.ParseResourceKeys(text); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", annotation.QuotaResourceKeys, err)
		}
	}
	for i := range keys {
		keys[i] = amount.Canonical(keys[i])
	}
	all, off := amount.List{}, amount.List{} // off is on cordoned nodes
	for _, node := range nodes {
		has, _, counted := Counted(node, now)
		if !counted || !selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		has = has.Offered(keys)
		for _, key := range keys {
			all[key] += has[key]
			if node.Spec.Unschedulable {
				off[key] += has[key]
			}
		}
	}
	for _, key := range keys {
		all[key], off[key] = scale(all[key], ratio), scale(off[key], ratio)
	}
	total := convert.ResourceList(all)
	q := &v1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{
		Namespace: profile.Namespace, Name: profile.Spec.QuotaName, Labels: maps.Clone(profile.Spec.QuotaLabels),
		Annotations: map[string]string{
			annotation.QuotaTotal:         annotation.Amounts(total).String(),
			annotation.QuotaUnschedulable: annotation.Amounts(convert.ResourceList(off)).String(),
		},
	}, Spec: v1alpha1.ElasticQuotaSpec{Min: total, Max: total}}
	q.SetGroupVersionKind(v1alpha1.Resource(v1alpha1.GroupName).GroupVersion().WithKind("ElasticQuota"))
	if q.Labels == nil {
		q.Labels = map[string]string{}
	}
	q.Labels[annotation.QuotaProfile] = profile.Name
	q.Labels[annotation.QuotaIsRoot], q.Labels[annotation.QuotaIsParent] = "true", "true"
	q.Labels[annotation.QuotaTreeID] = cmp.Or(profile.Labels[annotation.QuotaTreeID], q.Labels[annotation.QuotaTreeID],
		treeID(profile))
	return q, nil
}

// treeID returns the id of a tree that no other profile has.
func treeID(profile *quotav1alpha1.ElasticQuotaProfile) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", profile.Namespace, profile.Name)
	return strconv.FormatUint(h.Sum64(), 10)
}

// scale returns n · ratio in whole units, rounded down; n where the product does not fit int64.
func scale(n int64, ratio *big.Rat) int64 {
	part := new(big.Rat).Mul(new(big.Rat).SetInt64(n), ratio)
	if whole := new(big.Int).Quo(part.Num(), part.Denom()); whole.IsInt64() {
		return whole.Int64()
	}
	return n
}

// WithProfile returns a copy of a quota with what its profile decides, which is want of ProfileQuota. The tree of a
// quota is never changed.
func WithProfile(q, want *v1alpha1.ElasticQuota) *v1alpha1.ElasticQuota {
	next := q.DeepCopy()
	for key, value := range want.Labels {
		if key != annotation.QuotaTreeID {
			metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
		}
	}
	for key, value := range want.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	next.Spec = want.Spec
	return next
}
