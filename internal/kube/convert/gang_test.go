package convert_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func TestGangOfAPod(t *testing.T) {
	t.Parallel()
	native := "native"
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		native              *string
		want                string
	}{
		"none":           {annotations: map[string]string{annotation.GangMinAvailable: "2"}, want: " 0"},
		"an annotation":  {annotations: map[string]string{annotation.GangName: "a"}, want: "n/a 0"},
		"the old labels": {labels: map[string]string{annotation.LightweightGang: "l"}, want: "n/l 0"},
		"the own field":  {native: &native, labels: map[string]string{annotation.PodGroup: "g"}, want: "n/native 0"},
		"an unreadable min": {
			annotations: map[string]string{annotation.GangName: "a", annotation.GangMinAvailable: "many"},
			want:        "n/a 0",
		},
		"a negative min": {
			annotations: map[string]string{annotation.GangName: "a", annotation.GangMinAvailable: "-1"}, want: "n/a 0",
		},
		"a label before the annotation, the annotation's min": {
			labels: map[string]string{
				annotation.CommunityPodGroup: "c", annotation.LightweightGang: "l",
				annotation.LightweightMinAvailable: "4",
			},
			annotations: map[string]string{annotation.GangName: "a", annotation.GangMinAvailable: "3"}, want: "n/c 3",
		},
		"the label's min": {
			labels: map[string]string{
				annotation.PodGroup: "g", annotation.CommunityPodGroup: "c", annotation.LightweightMinAvailable: "4",
			},
			want: "n/g 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Labels: test.labels, Annotations: test.annotations,
			}}
			if test.native != nil {
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: test.native}
			}
			p := convert.QuotaPod(pod, convert.PodAmounts(pod))
			if got := fmt.Sprint(p.Gang, " ", p.GangMin); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
