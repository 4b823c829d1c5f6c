package kube_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func publishedQuota(group, name string, least any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "ElasticQuota",
		"metadata": map[string]any{
			"name": name, "namespace": "n", "labels": map[string]any{annotation.QuotaParent: "p"},
			"managedFields": []any{map[string]any{"manager": "m"}},
		},
		"spec":   map[string]any{"min": least, "max": map[string]any{"cpu": int64(2), "memory": "1Gi"}},
		"status": map[string]any{"used": map[string]any{"cpu": "500m"}},
	}}
}

func TestQuotasOfEachGroupAreRead(t *testing.T) {
	t.Parallel()
	c, _ := client(t, publishedQuota(v1alpha1.GroupName, "a", map[string]any{"cpu": "1"}),
		publishedQuota(v1alpha1.GroupName, "odd", []any{"cpu"}),
		publishedQuota(v1alpha1.GroupName, "slow", map[string]any{"cpu": "1e-9999999"}))
	i := kube.NewQuotaInformer(c, v1alpha1.GroupName)
	start(t, i)
	for name, want := range map[string]int64{"n/a": 1000, "n/odd": 0, "n/slow": 0} {
		object, _, err := i.GetStore().GetByKey(name)
		q, ok := object.(*v1alpha1.ElasticQuota)
		if err != nil || !ok {
			t.Fatalf("%s: got %v, %v", name, object, err)
		}
		if q.GroupVersionKind().Group != v1alpha1.GroupName || q.Labels[annotation.QuotaParent] != "p" ||
			q.ManagedFields != nil || q.Spec.Min.Cpu().MilliValue() != want || q.Spec.Max.Cpu().MilliValue() != 2000 ||
			q.Status.Used.Cpu().MilliValue() != 500 {
			t.Errorf("%s: read %+v", name, q)
		}
	}
	none := kube.NewQuotaInformer(c, v1alpha1.CommunityGroupName) // it is not installed
	start(t, none)
	if got := none.GetStore().List(); len(got) > 0 {
		t.Errorf("got %v of a group that is not served", got)
	}
}

func TestReadQuotaNamesEveryFieldThatItCannotRead(t *testing.T) {
	t.Parallel()
	q, err := kube.ReadQuota([]byte(`{"metadata":{"name":"q"},"spec":{"min":{"cpu":"x"},"max":{"cpu":"1e999"}}}`))
	if err != nil || q.Name != "q" {
		t.Fatalf("got %+v, %v", q, err)
	}
	_, problems := convert.Quota(q)
	for i, want := range []string{
		"spec.max: byte 7: cpu: quantity", "spec.min: byte 7: cpu: quantities must match",
	} {
		if len(problems) != 2 || !strings.Contains(problems[i].String(), want) {
			t.Errorf("%v: want %q in it", problems, want)
		}
	}
	if _, err := kube.ReadQuota([]byte(`{"metadata":[]}`)); err == nil {
		t.Error("a list for metadata is read")
	}
}
