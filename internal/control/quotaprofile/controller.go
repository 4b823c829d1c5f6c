package quotaprofile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/big"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// interval is the time between two comparisons of profiles, nodes and quotas.
const interval = 5 * time.Second

// Controller keeps the quotas of profiles. One at a time may run: the leader's.
type Controller struct {
	nodes  corelisters.NodeLister
	client dynamic.Interface
}

// New returns a controller that does not run.
func New(nodes corelisters.NodeLister, client dynamic.Interface) *Controller {
	return &Controller{nodes, client}
}

// Start works until ctx ends. The cache of nodes must be synced.
func (c *Controller) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := c.pass(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Profiles not followed")
		}
	}, interval)
	return nil
}

// pass makes the quota of every profile what the profile says. A cluster without the kind has no profiles.
func (c *Controller) pass(ctx context.Context, now time.Time) error {
	list, err := c.client.Resource(quotav1alpha1.Resource()).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list profiles: %w", err)
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	var failed []error
	for i := range list.Items {
		if err := c.follow(ctx, now, &list.Items[i], nodes); err != nil {
			p := &list.Items[i]
			failed = append(failed, fmt.Errorf("profile %s/%s: %w", p.GetNamespace(), p.GetName(), err))
		}
	}
	return errors.Join(failed...)
}

func (c *Controller) follow(ctx context.Context, now time.Time, object *unstructured.Unstructured,
	nodes []*corev1.Node,
) error {
	profile := &quotav1alpha1.ElasticQuotaProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, profile); err != nil {
		return err
	}
	want, err := topOf(profile, nodes, now)
	if err != nil {
		return err
	}
	quotas := c.client.Resource(v1alpha1.Resource(v1alpha1.GroupName)).Namespace(profile.Namespace)
	found, err := quotas.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
		if err != nil {
			return err
		}
		unstructured.RemoveNestedField(content, "status")
		_, err = quotas.Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	is := &v1alpha1.ElasticQuota{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, is); err != nil {
		return err
	}
	if owner := is.Labels[annotation.QuotaProfile]; owner != profile.Name {
		return fmt.Errorf("quota %s exists and its label %s is %q: delete it, or name another quota in quotaName",
			is.Name, annotation.QuotaProfile, owner)
	}
	patch, err := change(is, want)
	if err != nil || patch == nil {
		return err
	}
	_, err = quotas.Patch(ctx, is.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "tenon-manager"})
	return err
}

// topOf returns the quota that a profile asks for: the top of a tree of its own.
func topOf(profile *quotav1alpha1.ElasticQuotaProfile, nodes []*corev1.Node, now time.Time) (*v1alpha1.ElasticQuota,
	error,
) {
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
	all, off := quota.Amounts{}, quota.Amounts{} // off is on cordoned nodes
	for _, node := range nodes {
		has, _, counted := kube.Counted(node, now)
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
		all[key], off[key] = times(all[key], ratio), times(off[key], ratio)
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

// treeID is a tree of the profile's own.
func treeID(profile *quotav1alpha1.ElasticQuotaProfile) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", profile.Namespace, profile.Name)
	return strconv.FormatUint(h.Sum64(), 10)
}

// times returns the whole units of a part of an amount, or all where they do not fit.
func times(n int64, ratio *big.Rat) int64 {
	part := new(big.Rat).Mul(new(big.Rat).SetInt64(n), ratio)
	if whole := new(big.Int).Quo(part.Num(), part.Denom()); whole.IsInt64() {
		return whole.Int64()
	}
	return n
}

// change returns a merge patch of what the profile decides and the object does not say; nil without a difference. The
// tree of a quota is never changed.
func change(is, want *v1alpha1.ElasticQuota) ([]byte, error) {
	next := is.DeepCopy()
	for key, value := range want.Labels {
		if key != annotation.QuotaTreeID {
			metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
		}
	}
	for key, value := range want.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	next.Spec = want.Spec
	if equality.Semantic.DeepEqual(is, next) {
		return nil, nil
	}
	return client.MergeFrom(is).Data(next)
}
