package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/explanation/v1alpha1"
)

// NewExplanationInformer returns an informer of ScheduleExplanations. Of their status they have failedMessage and
// lastUpdateTime alone. One that cannot be read asks nothing. A cluster without the resource looks like one without
// objects until it is installed.
func NewExplanationInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{v1alpha1.Resource()}, v1alpha1.Kind, readExplanation)
}

func readExplanation(text *json.RawMessage) *v1alpha1.ScheduleExplanation {
	var o v1alpha1.ScheduleExplanation
	in := struct {
		Metadata     any
		Spec, Status json.RawMessage
	}{Metadata: &o.ObjectMeta}
	_ = json.Unmarshal(*text, &in) // what does not fit the type is left out
	_ = json.Unmarshal(in.Status, &struct {
		FailedMessage  *string
		LastUpdateTime **metav1.Time
	}{&o.Status.FailedMessage, &o.Status.LastUpdateTime})
	if json.Unmarshal(in.Spec, &o.Spec) != nil {
		o.Spec = v1alpha1.ScheduleExplanationSpec{}
	}
	o.ManagedFields = nil
	return &o
}
