package convert_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestALinkSaysOfAnObjectWhatRulesRead(t *testing.T) {
	t.Parallel()
	deleted := metav1.NewTime(time.Unix(1, 0))
	for name, c := range map[string]struct {
		apiVersion string
		object     metav1.ObjectMeta
		want       workload.Link
	}{
		"of an owner": {
			"batch/v1",
			metav1.ObjectMeta{
				Namespace: "ns", Name: "o", UID: "u",
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Node", Name: "other", UID: "x"},
					{APIVersion: "a.io/v1beta1", Kind: "Owner", Name: "w", UID: "v", Controller: new(true)},
				},
			},
			workload.Link{
				Namespace: "ns", Group: "batch", Version: "v1", Kind: "Job", Name: "o", UID: "u",
				Owner: &workload.Link{Group: "a.io", Version: "v1beta1", Kind: "Owner", Name: "w", UID: "v"},
			},
		},
		"that is being deleted": {
			"v1",
			metav1.ObjectMeta{Name: "o", DeletionTimestamp: &deleted},
			workload.Link{Version: "v1", Kind: "Job", Name: "o", Deleted: true},
		},
		"that wants no gang": {
			"v1",
			metav1.ObjectMeta{Name: "o", Labels: map[string]string{annotation.GangLabel: "off"}},
			workload.Link{Version: "v1", Kind: "Job", Name: "o", Off: true},
		},
		"with the label of a gang": {
			"v1",
			metav1.ObjectMeta{Name: "o", Labels: map[string]string{annotation.GangLabel: "on"}},
			workload.Link{Version: "v1", Kind: "Job", Name: "o"},
		},
	} {
		if diff := cmp.Diff(c.want, convert.WorkloadLink(c.apiVersion, "Job", &c.object)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhichPodsNameAGang: Tenon groups none of these by their workload.
func TestWhichPodsNameAGang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"none":              {object.Pod("p"), false},
		"another label":     {object.Pod("p", object.Label("app", "off")), false},
		"by its annotation": {object.Pod("p", object.Gang("g", "2")), true},
		"by a PodGroup":     {object.Pod("p", object.Label(annotation.PodGroup, "g")), true},
		"to another scheduler": {
			object.Pod("p", object.Annotation("scheduling.k8s.io/group-name", "g")), true,
		},
		"as Kubernetes does": {
			object.Pod("p", func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }), true,
		},
		"wants none":       {object.Pod("p", object.Label(annotation.GangLabel, "off")), true},
		"no word for that": {object.Pod("p", object.Label(annotation.GangLabel, "on")), false},
	} {
		if got := convert.NamesGang(c.pod); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
