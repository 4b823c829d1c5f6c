package migration

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestAFleetDecodesEachJobOnce, and groups jobs by the owners of their Reservations, else by their workloads.
func TestAFleetDecodesEachJobOnce(t *testing.T) {
	t.Parallel()
	job := func(name, workload string) *v1alpha1.PodMigrationJob {
		return &v1alpha1.PodMigrationJob{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), Annotations: map[string]string{
					annotation.MigrationStartKey: annotation.Encode(annotation.MigrationStart{
						Time: metav1.Unix(1, 0), Node: "n", Workload: workload,
					}),
				},
			},
			Spec: v1alpha1.PodMigrationJobSpec{PodRef: &corev1.ObjectReference{UID: "p"}},
		}
	}
	place := func(uid, job, owner string) *reservation.Reservation {
		r := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(uid), Annotations: map[string]string{annotation.MigrationJobKey: job},
		}}
		r.Spec.Owners = []reservation.ReservationOwner{{Object: &corev1.ObjectReference{Name: owner}}}
		return r
	}
	without := job("without-pod", "w")
	without.Spec.PodRef = nil
	evicted := func(j *v1alpha1.PodMigrationJob, second int64) *v1alpha1.PodMigrationJob {
		j.Status.Conditions = []v1alpha1.PodMigrationJobCondition{{
			Type: move.Eviction, Status: "True", Reason: move.EvictComplete, LastProbeTime: metav1.Unix(second, 0),
		}}
		return j
	}
	jobs := []*v1alpha1.PodMigrationJob{
		job("a", "w"), evicted(job("b", "w"), 7), evicted(job("c", "w"), 5), job("d", "v"), without, job("e", "v"),
	}
	places := []*reservation.Reservation{
		place("ra", "a", "x"), place("rb", "b", "x"), place("rd", "d", "y"), place("again", "d", "x"),
		place("rx", "", "x"),
	}
	decodes := map[string]int{}
	f := newFleet(jobs, places, func(j *v1alpha1.PodMigrationJob) *move.Job {
		decodes[j.Name]++
		return convert.MigrationJob(j)
	})
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, decodes); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if !f.first.Equal(time.Unix(5, 0)) || !f.reserved["rx"] || f.reserved["a"] {
		t.Errorf("first eviction %v, reserved %v", f.first, f.reserved)
	}
	for i, want := range []string{"a b c", "a b c", "", "d e"} {
		if want == "" {
			continue
		}
		r := places[min(i, 2)]
		got := ""
		for _, d := range f.neighbors(r, convert.MigrationJob(jobs[i])) {
			got += fmt.Sprint(" ", d.object.Name)
		}
		if got != " "+want {
			t.Errorf("neighbors of %s: %q, want %q", jobs[i].Name, got, want)
		}
	}
}
