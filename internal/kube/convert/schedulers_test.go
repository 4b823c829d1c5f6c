package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestUnservedFieldsAreThoseOfTenonAlone(t *testing.T) {
	t.Parallel()
	pod := object.Pod("p", object.Container("c", ""))
	pod.Spec.Containers[0].Resources.Requests = object.List("cpu", "1", "koordinator.sh/rdma", "1",
		"nvidia.com/gpu", "1", "kubernetes.io/batch-cpu", "1", "kubernetes.io/example", "1")
	pod.Labels = map[string]string{
		annotation.QoSClass: "LSR", "app": "web", "notkoordinator.sh/x": "", annotation.CommunityPodGroup: "g",
	}
	pod.Annotations = map[string]string{
		annotation.SimulateKey: "{}", annotation.ScaleHelper: "ns/p", annotation.GangName: "g",
	}
	own := []string{
		"metadata.annotations[" + annotation.GangName + "]", "metadata.labels[koordinator.sh/qosClass]",
		"spec.containers[*].resources[koordinator.sh/rdma]", "spec.containers[*].resources[kubernetes.io/batch-cpu]",
	}
	withGroup := append(append([]string{}, own[:2]...), append([]string{
		"metadata.labels[" + annotation.CommunityPodGroup + "]",
	}, own[2:]...)...)
	for scheduler, want := range map[string][]string{
		"volcano": own, "": withGroup, corev1.DefaultSchedulerName: withGroup,
	} {
		pod.Spec.SchedulerName = scheduler
		if diff := cmp.Diff(want, convert.Unserved(pod)); diff != "" {
			t.Errorf("scheduler %q (-want +got):\n%s", scheduler, diff)
		}
	}
}
