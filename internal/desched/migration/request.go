package migration

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube"
)

// requests are the EvictionRequests of Kubernetes 1.37, by which other programs are asked to evict a pod.
var requests = schema.GroupVersionResource{
	Group: "lifecycle.k8s.io", Version: "v1alpha1", Resource: "evictionrequests",
}

const requestKind = "EvictionRequest"

// RequestInformer returns an informer of EvictionRequests. It returns an error where the API server has none.
func RequestInformer(found discovery.DiscoveryInterface, reader rest.Interface) (cache.SharedIndexInformer, error) {
	all, err := found.ServerResourcesForGroupVersion(requests.GroupVersion().String())
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("look for %s of %s: %w", requests.Resource, requests.GroupVersion(), err)
	case err != nil || !slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool {
		return r.Name == requests.Resource
	}):
		return nil, fmt.Errorf("evictionPolicy: Request needs %s of %s, an alpha API of Kubernetes 1.37, "+
			"which the API server does not have: use Eviction, Delete or SoftEviction", requests.Resource,
			requests.GroupVersion())
	}
	return kube.NewObjectInformer(reader, requests, requestKind,
		func(u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetManagedFields(nil)
			return u
		}), nil
}

// requestOf is the EvictionRequest for the pod of a job. It is deleted with the job at the latest.
func requestOf(j *v1alpha1.PodMigrationJob) *unstructured.Unstructured {
	r := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"requester": annotation.EvictionRequester, "intent": "Eviction", "target": map[string]any{"pod": map[string]any{
			"name": j.Spec.PodRef.Name, "uid": string(j.Spec.PodRef.UID),
		}},
	}}}
	r.SetGroupVersionKind(requests.GroupVersion().WithKind(requestKind))
	r.SetNamespace(j.Spec.PodRef.Namespace)
	r.SetName("migration-" + string(j.UID))
	r.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind, Name: j.Name, UID: j.UID,
	}})
	return r
}

// requestsEviction reports whether the pod of a job is evicted by a request: a pod of a gang never is.
func (c *Controller) requestsEviction(j *v1alpha1.PodMigrationJob) bool {
	return c.Args.EvictionPolicy == byRequest && c.job(j).Gang == ""
}

// request creates the EvictionRequest of a job.
func (c *Controller) request(ctx context.Context, j *v1alpha1.PodMigrationJob) error {
	if err := c.Client.Create(ctx, requestOf(j)); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// withdraw deletes the EvictionRequest of a job.
func (c *Controller) withdraw(ctx context.Context, j *v1alpha1.PodMigrationJob) error {
	return client.IgnoreNotFound(c.Client.Delete(ctx, requestOf(j)))
}

func (s cached) request(_ context.Context, j *v1alpha1.PodMigrationJob) (*unstructured.Unstructured, error) {
	object, _, err := s.c.Requests.Get(requestOf(j))
	r, _ := object.(*unstructured.Unstructured)
	return r, err
}

func (s live) request(ctx context.Context, j *v1alpha1.PodMigrationJob) (*unstructured.Unstructured, error) {
	r := requestOf(j)
	if err := s.c.Client.Get(ctx, client.ObjectKeyFromObject(r), r); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", requestKind, r.GetNamespace(), r.GetName(), err)
	}
	return r, nil
}

// readRequest adds what has become of the EvictionRequest of a job to its world.
func (c *Controller) readRequest(ctx context.Context, j *v1alpha1.PodMigrationJob, m *move.Job, w *move.World,
	from source,
) error {
	ended := m.Status.Phase.IsFinal() && !slices.Contains(j.Finalizers, annotation.MigrationFinalizer)
	if !c.requestsEviction(j) || m.Status.Find(move.Eviction).Type == "" || ended {
		return nil
	}
	r, err := from.request(ctx, j)
	if err != nil || r == nil {
		return err
	}
	if w.Requested = true; w.Pod == nil || w.Pod.UID != m.PodUID {
		return nil
	}
	w.Pod.Asked = true
	all, _, _ := unstructured.NestedSlice(r.Object, "status", "conditions")
	for _, one := range all {
		if c, _ := one.(map[string]any); c["type"] == "Failed" && c["status"] == string(metav1.ConditionTrue) {
			w.Pod.Asked, w.Failure = false, &move.Failure{
				Action: move.Evict, Final: true,
				Text: fmt.Sprintf("%s: %v: %v", requestKind, c["reason"], c["message"]),
			}
		}
	}
	return nil
}
