package convert_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func TestMigrationJob(t *testing.T) {
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
	running := move.Job{
		UID: "u", Name: "j", PodUID: "old", PodName: "p", Namespace: "a", Workload: "w", Gang: "a/g", Source: "n0",
		Created: created, Started: started, Passed: true,
	}
	succeeded := move.Status{
		Phase: move.Succeeded, Node: "n1", Conditions: []move.Condition{
			{Type: move.Eviction, True: true, Reason: move.EvictComplete, Changed: ended, Probed: evicted},
			{Type: move.Ended, True: true, Changed: ended, Probed: ended},
		},
	}
	tests := map[string]struct {
		job  *v1alpha1.PodMigrationJob
		want move.Job
		// evicted and ended are what the limits count.
		evicted, ended time.Time
	}{
		"a job that waits": {
			job:  job(func(*v1alpha1.PodMigrationJob) {}),
			want: move.Job{UID: "u", Name: "j", PodUID: "old", PodName: "p", Namespace: "a", Created: created},
		},
		"a job that has started": {job: job(start), want: running},
		"a job that has evicted its pod and succeeded": {
			job: job(func(j *v1alpha1.PodMigrationJob) {
				start(j)
				convert.SetMigrationStatus(&j.Status, &succeeded)
			}),
			want: func() move.Job {
				j := running
				j.Status = succeeded
				return j
			}(),
			evicted: evicted.Add(time.Second - 1), ended: ended,
		},
		"a job of an old Koordinator": {
			job: job(func(j *v1alpha1.PodMigrationJob) { j.Status.Phase = v1alpha1.PodMigrationJobSucceed }),
			want: move.Job{
				UID: "u", Name: "j", PodUID: "old", PodName: "p", Namespace: "a", Created: created,
				Status: move.Status{Phase: move.Succeeded},
			},
			ended: created,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := convert.MigrationJob(test.job)
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("MigrationJob (-want +got):\n%s", diff)
			}
			if at := got.LastEviction(); !at.Equal(test.evicted) {
				t.Errorf("evicted its pod at %v, want %v", at, test.evicted)
			}
			if at := got.EndedAt(); !at.Equal(test.ended) {
				t.Errorf("ended at %v, want %v", at, test.ended)
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
	if diff := cmp.Diff(want, convert.MigrationJob(j).Status); diff != "" {
		t.Errorf("MigrationJob (-want +got):\n%s", diff)
	}
}
