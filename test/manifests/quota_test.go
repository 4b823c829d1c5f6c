package manifests

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

func elasticQuota(group, name, parent, least, most string) *unstructured.Unstructured {
	q := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"min": map[string]any{"cpu": least}, "max": map[string]any{"cpu": most}},
	}}
	q.SetAPIVersion(group + "/v1alpha1")
	q.SetKind("ElasticQuota")
	q.SetNamespace("default")
	q.SetName(name)
	if parent != "" {
		q.SetLabels(map[string]string{annotation.QuotaParent: parent})
	}
	return q
}

// quotas checks trees of both groups, created as quickly as a client can, through a real API server.
func (c *cluster) quotas(t *testing.T) {
	client, err := dynamic.NewForConfig(c.config)
	testkit.Check(t, err)
	resourceIn := func(group string) dynamic.ResourceInterface {
		return client.Resource(v1alpha1.Resource(group)).Namespace("default")
	}
	create := func(q *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return resourceIn(q.GroupVersionKind().Group).Create(t.Context(), q, metav1.CreateOptions{})
	}
	refused := func(err error, want string) {
		t.Helper()
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want invalid and %q", err, want)
		}
	}
	root := elasticQuota(v1alpha1.GroupName, "blue", "", "10", "10")
	root.SetLabels(map[string]string{
		annotation.QuotaIsParent: "true", annotation.QuotaIsRoot: "true", annotation.QuotaTreeID: "blue",
	})
	_, err = create(root)
	testkit.Check(t, err)
	child, err := create(elasticQuota(v1alpha1.CommunityGroupName, "child", "blue", "6", "10"))
	testkit.Check(t, err)
	if tree := child.GetLabels()[annotation.QuotaTreeID]; tree != "blue" {
		t.Errorf("the child is in the tree %q, want that of its parent", tree)
	}
	_, err = create(elasticQuota(v1alpha1.GroupName, "other", "blue", "5", "10"))
	refused(err, "all brothers' MinQuota > parent MinQuota, parent: blue; cpu: 11 > 10 (V5)")
	_, err = create(elasticQuota(v1alpha1.GroupName, "child", "blue", "1", "10"))
	refused(err, "default/child of scheduling.x-k8s.io exists already")
	refused(resourceIn(v1alpha1.GroupName).Delete(t.Context(), "blue", metav1.DeleteOptions{}),
		"quota blue has 1 child quotas, such as child (V9)")

	labelled := pod("in-a-parent", "LS", "1")
	labelled.Labels = map[string]string{annotation.QuotaName: "blue"}
	_, err = c.client.CoreV1().Pods("default").Create(t.Context(), labelled, metav1.CreateOptions{})
	refused(err, "pods of namespace default are in quota blue, which is a parent")
	labelled.Labels[annotation.QuotaName], labelled.Name = "child", "in-a-leaf"
	_, err = c.client.CoreV1().Pods("default").Create(t.Context(), labelled, metav1.CreateOptions{})
	testkit.Check(t, err)
	testkit.Check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := resourceIn(v1alpha1.CommunityGroupName).Delete(ctx, "child",
				metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "quota child has 1 pods"), nil // once the pod is shown
		}))

	// The manager writes what the pod asks for.
	testkit.Check(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if child, err = resourceIn(v1alpha1.CommunityGroupName).Get(t.Context(), "child", metav1.GetOptions{}); err != nil {
			return err
		}
		child.Object["status"] = map[string]any{"used": map[string]any{"cpu": "3"}}
		child, err = resourceIn(v1alpha1.CommunityGroupName).UpdateStatus(t.Context(), child, metav1.UpdateOptions{})
		return err
	}))
	if used, _, _ := unstructured.NestedString(child.Object, "status", "used", "cpu"); used != "3" {
		t.Errorf("status.used is %q, want 3", used)
	}
}
