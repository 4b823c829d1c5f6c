package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// NewQuotaInformer returns an informer of the ElasticQuotas of a group, whose objects name the group. A cluster without
// the resource looks like one without objects until it is installed.
func NewQuotaInformer(client rest.Interface, group string) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{v1alpha1.Resource(group)}, "ElasticQuota",
		(*publishedQuota).read)
}

// ReadQuota reads the JSON of an ElasticQuota. What cannot be read of it is in Unread, quantities that would take
// seconds to read among it.
func ReadQuota(text []byte) (*v1alpha1.ElasticQuota, error) {
	var p publishedQuota
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	return p.read(), nil
}

// publishedQuota is an object whose quantities are not read yet.
type publishedQuota struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta
	Spec     struct{ Min, Max json.RawMessage }
	Status   struct{ Used json.RawMessage }
}

// read leaves out what cannot be read, and says so in Unread.
func (p *publishedQuota) read() *v1alpha1.ElasticQuota {
	q := &v1alpha1.ElasticQuota{TypeMeta: p.TypeMeta, ObjectMeta: p.Metadata}
	q.ManagedFields = nil
	var faults unread
	q.Spec.Min = faults.quantities("spec.min", p.Spec.Min)
	q.Spec.Max = faults.quantities("spec.max", p.Spec.Max)
	q.Status.Used = faults.quantities("status.used", p.Status.Used)
	q.Unread = faults
	return q
}
