package kube

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
)

// NewObjectInformer returns an informer of any namespaced resource of a kind, whose objects are what keep leaves of
// them. A cluster without the resource looks like one without objects until it is installed.
func NewObjectInformer(client rest.Interface, resource schema.GroupVersionResource, kind string,
	keep func(*unstructured.Unstructured) *unstructured.Unstructured,
) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{resource}, kind,
		func(o *map[string]any) *unstructured.Unstructured {
			return keep(&unstructured.Unstructured{Object: *o})
		})
}

// NewMigrationInformer returns an informer of PodMigrationJobs. One that cannot be read is paused: the API server takes
// any text as its ttl.
func NewMigrationInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{migration.Resource()}, "PodMigrationJob",
		func(text *json.RawMessage) *migration.PodMigrationJob {
			job, err := readAs[migration.PodMigrationJob](*text)
			job.ManagedFields = nil
			if err != nil {
				job.Spec.Paused, job.Unread = true, err.Error()
			}
			return job
		})
}

// WithoutManagedFields is a transform of informers that keeps caches small.
func WithoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
