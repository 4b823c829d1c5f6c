package makeroom_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/desched/makeroom"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// onePod is a cluster with one pod.
type onePod struct{ pod *corev1.Pod }

func (o onePod) Pod(_ string, uid types.UID) *corev1.Pod {
	if uid != o.pod.UID {
		return nil
	}
	return o.pod
}

func TestAPodIsNominatedWhileRoomIsMadeForIt(t *testing.T) {
	t.Parallel()
	const running, succeeded = v1alpha1.PodMigrationJobRunning, v1alpha1.PodMigrationJobSucceeded
	const room = `{"pods":[{"namespace":"default","name":"large","uid":"u","node":"n1"}]}`
	nominate := `{"metadata":{"uid":"u"},"status":{"nominatedNodeName":"n1"}}`
	onNode := func(p *corev1.Pod) { p.Spec.NodeName = "n3" }
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "n3" }
	replaced := func(p *corev1.Pod) { p.UID = "v" }
	for name, c := range map[string]struct {
		room  string
		phase v1alpha1.PodMigrationJobPhase
		ended time.Duration // ago
		pod   func(*corev1.Pod)
		want  []string
	}{
		"while it waits":                    {room: room, want: []string{nominate}},
		"while it runs":                     {room: room, phase: running, want: []string{nominate}},
		"shortly after it succeeded":        {room, succeeded, time.Minute, nil, []string{nominate}},
		"not later":                         {room, succeeded, time.Minute + 1, nil, nil},
		"not after it has failed":           {room, v1alpha1.PodMigrationJobFailed, 0, nil, nil},
		"not for a job for no other pod":    {},
		"not for a text that is not a room": {room: "{"},
		"not a pod on a node":               {room: room, pod: onNode},
		"not a pod with a nomination":       {room: room, pod: nominated},
		"not another pod of the same name":  {room: room, pod: replaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := object.Pod("large")
			pod.UID = "u"
			if c.pod != nil {
				c.pod(pod)
			}
			job := &v1alpha1.PodMigrationJob{
				ObjectMeta: metav1.ObjectMeta{Name: "j", Annotations: map[string]string{}},
				Status: v1alpha1.PodMigrationJobStatus{Phase: c.phase, Conditions: []v1alpha1.PodMigrationJobCondition{{
					Type: "Eviction", LastTransitionTime: metav1.NewTime(now.Add(-c.ended)),
				}}},
			}
			if c.room != "" {
				job.Annotations[annotation.MigrationRoomKey] = c.room
			}
			jobs := cache.NewStore(cache.MetaNamespaceKeyFunc)
			_ = jobs.Add(job)
			client := fake.NewClientset(pod)
			n := &makeroom.Nominator{
				Jobs: jobs, Pods: onePod{pod}, Client: client, Clock: testclock.NewFakePassiveClock(now),
			}
			n.Renew(t.Context())
			var got []string
			for _, a := range client.Actions() {
				if a.GetSubresource() != "status" {
					t.Errorf("%s of %q, want status", a.GetVerb(), a.GetSubresource())
				}
				got = append(got, string(a.(clienttesting.PatchAction).GetPatch()))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("patches (-want +got):\n%s", diff)
			}
		})
	}
}
