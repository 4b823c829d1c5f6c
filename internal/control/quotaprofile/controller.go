package quotaprofile

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tenon-project/tenon/internal/kube"
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
	want, err := kube.ProfileQuota(profile, nodes, now)
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
	current := &v1alpha1.ElasticQuota{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, current); err != nil {
		return err
	}
	if owner := current.Labels[annotation.QuotaProfile]; owner != profile.Name {
		return fmt.Errorf("quota %s exists and its label %s is %q: delete it, or name another quota in quotaName",
			current.Name, annotation.QuotaProfile, owner)
	}
	patch, err := change(current, want)
	if err != nil || patch == nil {
		return err
	}
	_, err = quotas.Patch(ctx, current.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "tenon-manager"})
	return err
}

// change returns a merge patch of what the profile decides and the object does not say; nil without a difference.
func change(current, want *v1alpha1.ElasticQuota) ([]byte, error) {
	next := kube.WithProfile(current, want)
	if equality.Semantic.DeepEqual(current, next) {
		return nil, nil
	}
	return client.MergeFrom(current).Data(next)
}
