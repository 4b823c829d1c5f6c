package rights

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// evictionRequests are of the shape of Kubernetes 1.37, as far as requests are concerned.
const evictionRequests = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: evictionrequests.lifecycle.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, of a test"}
spec:
  group: lifecycle.k8s.io
  names: {kind: EvictionRequest, plural: evictionrequests, singular: evictionrequest}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [target, requester, intent]
            properties:
              target:
                type: object
                required: [pod]
                properties:
                  pod:
                    type: object
                    required: [name, uid]
                    properties:
                      name: {type: string}
                      uid: {type: string, pattern: "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
              requester: {type: string, pattern: "^[a-z0-9.-]+/[a-z0-9-]+$"}
              intent: {type: string, enum: [Eviction, Withdrawn]}
`

const requestSettings = `
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
- name: p
  pluginConfig:
  - name: MigrationController
    args:
      {evictionPolicy: Request, evictAllBarePods: true, minPodAge: 0s, skipEvictionGates: [BarePods, ExpectedReplicas]}
`

var requestResource = schema.GroupVersionResource{
	Group: "lifecycle.k8s.io", Version: "v1alpha1", Resource: "evictionrequests",
}

// TestTheDeschedulerRequestsEvictions has the account of the chart, with the right that it gets with evictionPolicy
// Request.
func TestTheDeschedulerRequestsEvictions(t *testing.T) {
	c := start(t)
	_, err := c.admin.typed.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "requests"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"lifecycle.k8s.io"}, Resources: []string{"evictionrequests"},
			Verbs: []string{"get", "list", "watch", "create", "delete"},
		}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = c.admin.typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "requests"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "requests"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "tenon-descheduler"}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	settings, err := descheduler.Read("f.yaml", []byte(requestSettings))
	testkit.Check(t, err)
	config := rest.CopyConfig(c.admin.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":tenon-descheduler",
		Groups:   []string{"system:authenticated", "system:serviceaccounts"},
	}
	options := app.Options{
		Component: serving.Component{RESTConfig: config, Namespace: namespace}, Settings: settings,
	}

	const absent = "set up the descheduler: evictionPolicy: Request needs evictionrequests of " +
		"lifecycle.k8s.io/v1alpha1, an alpha API of Kubernetes 1.37, which the API server does not have: " +
		"use Eviction, Delete or SoftEviction"
	if err := app.Run(t.Context(), options); err == nil || err.Error() != absent {
		t.Fatalf("without the API Run = %v, want %s", err, absent)
	}

	applier, err := install.NewApplier(c.admin.config)
	testkit.Check(t, err)
	objects, err := install.Parse([]byte(evictionRequests))
	testkit.Check(t, err)
	testkit.Check(t, applier.Apply(t.Context(), objects))
	testkit.Check(t, applier.AwaitEstablished(t.Context(), objects))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, options) }()

	_, err = c.admin.typed.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	goes, stays := c.move(t, "goes"), c.move(t, "stays")
	c.awaitRequest(t, goes)
	c.awaitRequest(t, stays)
	// A program evicts one of the pods, and a user stops the move of the other one.
	now := int64(0)
	testkit.Check(t, c.admin.typed.CoreV1().Pods("default").Delete(t.Context(), goes.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now}))
	jobs := c.admin.objects.Resource(v1alpha1.Resource())
	_, err = jobs.Patch(t.Context(), stays.Name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+annotation.AbortMigration+`":"true"}}}`), metav1.PatchOptions{})
	testkit.Check(t, err)
	c.await(t, "the requests are withdrawn", func(ctx context.Context) error {
		all, err := c.admin.objects.Resource(requestResource).List(ctx, metav1.ListOptions{})
		if err == nil && len(all.Items) > 0 {
			err = fmt.Errorf("%d are left", len(all.Items))
		}
		return err
	})
	c.await(t, "the job of the evicted pod succeeds", func(ctx context.Context) error {
		j, err := jobs.Get(ctx, goes.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(j.Object, "status", "phase"); phase != "Succeeded" {
			return fmt.Errorf("it is %v", j.Object["status"])
		}
		return nil
	})
	left, err := c.admin.typed.CoreV1().Pods("default").Get(t.Context(), stays.Name, metav1.GetOptions{})
	if err != nil || left.DeletionTimestamp != nil {
		t.Errorf("the other pod: %v, deleted at %v", err, left.DeletionTimestamp)
	}
	stop()
	testkit.Check(t, <-done)
}

// move creates a pod and a job of its name that evicts it.
func (c *cluster) move(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := testobject.Pod("default/"+name, testobject.On("a"), testobject.Container("c", "x"))
	p.UID, p.Spec.AutomountServiceAccountToken = "", new(bool)
	p, err := c.admin.typed.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	testkit.Check(t, err)
	j := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"mode":   string(v1alpha1.EvictDirectly),
		"podRef": map[string]any{"namespace": "default", "name": name},
	}}}
	j.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	j.SetName(name)
	_, err = c.admin.objects.Resource(v1alpha1.Resource()).Create(t.Context(), j, metav1.CreateOptions{})
	testkit.Check(t, err)
	return p
}

// awaitRequest waits for the request to evict a pod.
func (c *cluster) awaitRequest(t *testing.T, p *corev1.Pod) {
	t.Helper()
	c.await(t, "an eviction is requested", func(ctx context.Context) error {
		all, err := c.admin.objects.Resource(requestResource).Namespace("default").List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		for i := range all.Items {
			spec := func(fields ...string) string {
				text, _, _ := unstructured.NestedString(all.Items[i].Object, append([]string{"spec"}, fields...)...)
				return text
			}
			if spec("target", "pod", "uid") == string(p.UID) && spec("target", "pod", "name") == p.Name &&
				spec("requester") == annotation.EvictionRequester && spec("intent") == "Eviction" {
				return nil
			}
		}
		return fmt.Errorf("there are %d requests, none of pod %s", len(all.Items), p.Name)
	})
}

func (c *cluster) await(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = f(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}
