package convert_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func TestMigrationJobAsLimitsCountIt(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	started, evicted, ended := created.Add(time.Minute), created.Add(2*time.Minute), created.Add(3*time.Minute)
	job := func(change func(*v1alpha1.PodMigrationJob)) *v1alpha1.PodMigrationJob {
		j := &v1alpha1.PodMigrationJob{
			ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u", CreationTimestamp: metav1.NewTime(created)},
			Spec: v1alpha1.PodMigrationJobSpec{
				PodRef: &corev1.ObjectReference{Namespace: "a", Name: "p", UID: "old"},
			},
		}
		change(j)
		return j
	}
	start := func(j *v1alpha1.PodMigrationJob) {
		j.Annotations = map[string]string{
			annotation.PassedArbitration: "true",
			annotation.MigrationStartKey: annotation.Encode(annotation.MigrationStart{
				Time: metav1.NewTime(started), Node: "n0", Workload: "w", Gang: "a/g",
			}),
		}
	}
	running := evict.Job{
		UID: "u", Name: "j", PodUID: "old", PodName: "p", Namespace: "a", Workload: "w", Gang: "a/g", Source: "n0",
		Created: created, StartedAt: started, Phase: evict.Started,
	}
	tests := map[string]struct {
		job  *v1alpha1.PodMigrationJob
		want evict.Job
	}{
		"a job that waits": {
			job(func(*v1alpha1.PodMigrationJob) {}),
			evict.Job{UID: "u", Name: "j", PodUID: "old", PodName: "p", Namespace: "a", Created: created},
		},
		"a job that has started": {job(start), running},
		"a job that has evicted its pod and succeeded": {
			job(func(j *v1alpha1.PodMigrationJob) {
				start(j)
				convert.SetMigrationStatus(&j.Status, &move.Status{
					Phase: move.Succeeded, Node: "n1", Conditions: []move.Condition{
						{Type: move.Eviction, True: true, Reason: move.EvictComplete, Changed: ended, Probed: evicted},
						{Type: move.Ended, True: true, Changed: ended, Probed: ended},
					},
				})
			}),
			func() evict.Job {
				j := running
				j.Phase, j.Target, j.Evicted, j.Finished = evict.Succeeded, "n1", evicted.Add(time.Second-1), ended
				return j
			}(),
		},
		"a job of an old Koordinator": {
			job(func(j *v1alpha1.PodMigrationJob) { j.Status.Phase = v1alpha1.PodMigrationJobSucceed }),
			evict.Job{
				UID: "u", Name: "j", PodUID: "old", PodName: "p", Namespace: "a", Created: created, Finished: created,
				Phase: evict.Succeeded,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, convert.EvictJob(test.job)); diff != "" {
				t.Errorf("EvictJob (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMigrationStatusIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := move.Status{
		Phase: move.Running, Stage: move.Eviction, Reason: "CapNode", Message: "m", Node: "n",
		Pod: move.Reference{Namespace: "a", Name: "q", UID: "v"}, Conditions: []move.Condition{
			{Type: move.Eviction, Reason: move.Evicting, Message: "x", Changed: at, Probed: at.Add(time.Second)},
			{Type: move.ReservationCreated, True: true, Changed: at, Probed: at},
		},
	}
	j := &v1alpha1.PodMigrationJob{}
	convert.SetMigrationStatus(&j.Status, &want)
	if diff := cmp.Diff(want, convert.Move(j, v1alpha1.ReservationFirst, time.Minute).Status); diff != "" {
		t.Errorf("Move (-want +got):\n%s", diff)
	}
}
