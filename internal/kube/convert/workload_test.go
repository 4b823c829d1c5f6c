package convert_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
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
