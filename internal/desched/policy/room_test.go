package policy

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// unplaced returns a pod that the scheduler has found no node for.
func unplaced(name string, priority int32) *corev1.Pod {
	p := object.Pod(name, object.Scheduler("tenon-scheduler"), object.Phase(corev1.PodPending))
	p.Spec.Priority = &priority
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(start),
	}}
	return p
}

// making makes room with more arguments of the profile after it.
func making(config string) string {
	return "profiles:\n- name: p\n  plugins: {balance: {enabled: [MakeRoom]}}\n  pluginConfig:\n" +
		"  - {name: MakeRoom, args: {pendingFor: 0s}}\n" + config
}

// rooms moves pods of names that may move, in their order, to n2: for other pods, or against fragmentation.
type rooms struct {
	s     *stage
	names []string
	asked []string // for which pods it was asked
}

func (r *rooms) moves(fall int64, refusals func(*evict.Pod) []evict.Refusal) (moves []view.RoomMove) {
	for _, name := range r.names {
		for pod := range r.s.state.Pods() {
			if pod.Name == name && len(refusals(&pod)) == 0 {
				moves = append(moves, view.RoomMove{Pod: name, UID: pod.UID, Node: pod.Node, Target: "n2", Fall: fall})
			}
		}
	}
	return moves
}

func (r *rooms) PlanAmong(_ context.Context, q *view.RoomRequest, refusals func(*evict.Pod) []evict.Refusal,
) (*view.RoomAnswer, error) {
	need := strings.Join(append(q.Pods, q.Gang), "")
	r.asked = append(r.asked, need)
	return &view.RoomAnswer{
		RoomPlan:   view.RoomPlan{Found: true, Moves: r.moves(0, refusals)},
		Placements: []view.WhatIfPlacement{{Pod: need, Node: "n1"}},
	}, nil
}

func (r *rooms) Defragment(_ context.Context, _ int, _ int64, refusals func(*evict.Pod) []evict.Refusal,
) (*view.RoomAnswer, error) {
	return &view.RoomAnswer{RoomPlan: view.RoomPlan{Moves: r.moves(50, refusals)}}, nil
}

// scheduler makes the stage's scheduler move pods of names that may move. It returns for which pods it was asked.
func (s *stage) scheduler(names ...string) *[]string {
	r := &rooms{s: s, names: names}
	s.Room = r
	return &r.asked
}

func TestAMoveThatMakesRoomIsAJobWithItsTarget(t *testing.T) {
	t.Parallel()
	large := unplaced("large", 0)
	s := newStage(t, making(noLimits), nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), large)
	s.scheduler("a")
	if diff := cmp.Diff([]string{"a"}, s.moved(t)); diff != "" {
		t.Fatalf("moved (-want +got):\n%s", diff)
	}
	j := s.jobs[0]
	template := string(j.Spec.ReservationOptions.Template.Raw)
	if !strings.Contains(template, `"nodeName":"n2"`) || j.Spec.Mode != v1alpha1.ReservationFirst {
		t.Errorf("the job reserves %s with mode %s", template, j.Spec.Mode)
	}
	want := `{"pods":[{"namespace":"default","name":"large","uid":"` + string(large.UID) + `","node":"n1"}]}`
	if got := j.Annotations[annotation.MigrationRoomKey]; got != want {
		t.Errorf("the job makes room for %s, want %s", got, want)
	}
}

func TestOnePodIsServedByOneSetOfMoves(t *testing.T) {
	t.Parallel()
	large := unplaced("large", 0)
	s := newStage(t, making(noLimits), nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), large)
	asked := s.scheduler("a")
	_ = s.moved(t)
	testkit.Check(t, s.Jobs.Add(s.jobs[0]))
	if got := s.moved(t); len(got) != 1 || len(*asked) != 1 {
		t.Errorf("a job exists: moved %v in both rounds, asked for %v", got, *asked)
	}
}

func TestASetIsMovedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	// The limit lets one pod of the ReplicaSet go, and each of the two alone.
	s := newStage(t, making("  - {name: MigrationController, args: {maxMigratingPerNode: 1}}\n"), nodes("n1", "n2"),
		web("a", "n1"), web("b", "n1"), web("c", "n2"), web("d", "n2"), unplaced("large", 0))
	s.scheduler("a", "b")
	if diff := cmp.Diff([]string{"a"}, s.moved(t)); diff != "" {
		t.Errorf("moved (-want +got): the second question leaves out the pod that was refused:\n%s", diff)
	}
	want := &view.Round{Time: s.ended, Accepted: 1, Refused: []view.RefusedMove{{
		KeptPod: view.KeptPod{Pod: "default/b", Node: "n1", Reasons: []view.KeptReason{{
			Code: "CapNode", Message: "CapNode: node n1: 1 of 1 migrations are used",
		}}},
		Plugin: "p/MakeRoom", Wish: "it makes room for pod default/large",
	}}}
	if diff := cmp.Diff(want, s.Last()); diff != "" {
		t.Errorf("the round (-want +got):\n%s", diff)
	}
}

func TestNoPodMovesForOneOfALowerPriority(t *testing.T) {
	t.Parallel()
	high := func(p *corev1.Pod) { p.Spec.Priority = new(int32(5)) }
	s := newStage(t, making(noLimits), nodes("n1", "n2"), web("a", "n1", high), web("b", "n1"), unplaced("large", 4))
	s.scheduler("a", "b")
	if diff := cmp.Diff([]string{"b"}, s.moved(t)); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
}

func TestTheOrderOfPodsThatWait(t *testing.T) {
	t.Parallel()
	late, gone, held, foreign := unplaced("late", 1), unplaced("gone", 9), unplaced("held", 9), unplaced("foreign", 9)
	late.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(time.Minute))
	gone.DeletionTimestamp = &metav1.Time{Time: start}
	held.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
	foreign.Spec.SchedulerName = "other"
	s := newStage(t, making(noLimits), nodes("n1"), unplaced("low", 0), late, unplaced("early", 1), gone, held, foreign)
	asked := s.scheduler()
	_ = s.moved(t)
	if diff := cmp.Diff([]string{"default/early", "default/late", "default/low"}, *asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestMembersOfAGangWaitTogether(t *testing.T) {
	t.Parallel()
	x, first := unplaced("x", 0), unplaced("g-0", 0)
	x.Status.Conditions[0].Reason = "WaitingForReservation" // it waits as the others do
	s := newStage(t, making(noLimits), nodes("n1"), first, unplaced("g-1", 0), x)
	for _, pod := range slices.Collect(s.state.Pods()) {
		if strings.HasPrefix(pod.Name, "g-") {
			pod.Gang = "default/g"
			s.state.SetPod(pod)
		}
	}
	asked := s.scheduler()
	_ = s.moved(t)
	if diff := cmp.Diff([]string{"default/g", "default/x"}, *asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	job := &v1alpha1.PodMigrationJob{ObjectMeta: metav1.ObjectMeta{Name: "job", Annotations: map[string]string{
		annotation.MigrationRoomKey: `{"pods":[{"namespace":"default","uid":"` + string(first.UID) + `"}]}`,
	}}}
	testkit.Check(t, s.Jobs.Add(job))
	*asked = nil
	_ = s.moved(t)
	if diff := cmp.Diff([]string{"default/x"}, *asked); diff != "" {
		t.Errorf("asked while a job makes room for a member (-want +got):\n%s", diff)
	}
}

func TestFragmentsAreLoweredWithinTheLimits(t *testing.T) {
	t.Parallel()
	config := func(args string) string {
		return "profiles:\n- name: p\n  plugins: {balance: {enabled: [Defragment]}}\n  pluginConfig:\n" +
			"  - {name: Defragment, args: " + args + "}\n" +
			"  - {name: MigrationController, args: {maxMigratingPerNode: 1}}\n"
	}
	for args, want := range map[string][]string{"{}": {"a"}, "{dryRun: true}": nil} {
		s := newStage(t, config(args), nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), web("c", "n2"),
			web("d", "n2"))
		s.scheduler("a", "b")
		if diff := cmp.Diff(want, s.moved(t)); diff != "" {
			t.Errorf("%s: moved (-want +got):\n%s", args, diff)
		}
		if got := s.Last(); got.Accepted != 1 || len(got.Refused) != 1 || got.Refused[0].Reasons[0].Code != "CapNode" {
			t.Errorf("%s: the round is %+v", args, got)
		}
		for _, j := range s.jobs {
			if _, makes := j.Annotations[annotation.MigrationRoomKey]; makes {
				t.Error("the job says that it makes room")
			}
		}
	}
}
