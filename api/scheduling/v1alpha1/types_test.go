package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

func TestBothGroupsDecodeAndKeepTheirName(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	for _, group := range v1alpha1.Groups() {
		object, _, err := decoder.Decode([]byte(`{"apiVersion":"`+group+`/v1alpha1","kind":"ElasticQuota",`+
			`"metadata":{"name":"q"},"spec":{"min":{"cpu":1},"max":{"cpu":"2"}},`+
			`"status":{"used":{"cpu":"500m"}}}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, ok := object.(*v1alpha1.ElasticQuota)
		if !ok || q.GroupVersionKind().Group != group || q.Spec.Min.Cpu().MilliValue() != 1000 ||
			q.Spec.Max.Cpu().MilliValue() != 2000 || q.Status.Used.Cpu().MilliValue() != 500 {
			t.Errorf("%s: read %+v", group, object)
		}
	}
}
