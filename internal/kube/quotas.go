package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// NewQuotaInformer returns an informer of the ElasticQuotas of a group, whose objects name the group. A cluster without
// the resource looks like one without objects until it is installed.
func NewQuotaInformer(client rest.Interface, group string) cache.SharedIndexInformer {
	kind := v1alpha1.Resource(group).GroupVersion().WithKind("ElasticQuota")
	read := func(p *publishedQuota) *v1alpha1.ElasticQuota {
		q := p.read()
		q.SetGroupVersionKind(kind)
		return q
	}
	return cache.NewSharedIndexInformer(&source[publishedQuota]{
		client: client, versions: []schema.GroupVersionResource{v1alpha1.Resource(group)},
		begin: func() runtime.Object { return &v1alpha1.ElasticQuotaList{} },
		add: func(all runtime.Object, one *publishedQuota) {
			list := all.(*v1alpha1.ElasticQuotaList)
			list.Items = append(list.Items, *read(one))
		},
		read: func(u *unstructured.Unstructured) runtime.Object {
			var p publishedQuota
			if text, err := json.Marshal(u.Object); err == nil {
				_ = json.Unmarshal(text, &p) // what does not fit the type is left out
			}
			return read(&p)
		},
	}, &v1alpha1.ElasticQuota{}, 0, cache.Indexers{})
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
	for _, part := range []struct {
		field string
		text  json.RawMessage
		into  *corev1.ResourceList
	}{
		{"spec.min", p.Spec.Min, &q.Spec.Min},
		{"spec.max", p.Spec.Max, &q.Spec.Max},
		{"status.used", p.Status.Used, &q.Status.Used},
	} {
		if len(part.text) == 0 {
			continue
		}
		list, _, err := annotation.ParseQuantities(string(part.text))
		if err != nil {
			if q.Unread == nil {
				q.Unread = map[string]string{}
			}
			q.Unread[part.field] = err.Error()
		}
		*part.into = corev1.ResourceList(list)
	}
	return q
}
