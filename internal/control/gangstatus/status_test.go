package gangstatus

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// podGroup returns one of 3 members, or more by its annotations.
func podGroup(group string, was v1alpha1.PodGroupPhase) *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{}
	g.Namespace, g.Name, g.UID, g.ResourceVersion = "ml", "train", "g", "1"
	g.SetGroupVersionKind(v1alpha1.PodGroupResource(group).GroupVersion().WithKind("PodGroup"))
	g.Spec.MinMember, g.Status.Phase = 3, was
	return g
}

// pods returns one for each letter: q is in the queue, b has a node, r runs, s has succeeded, f has failed.
func pods(states string) (all []*corev1.Pod) {
	for i, state := range states {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: fmt.Sprint("train-", i), UID: "u",
			CreationTimestamp: metav1.Unix(int64(1000-i), 0), // the last is the oldest
			Labels:            map[string]string{annotation.PodGroup: "train"},
		}}
		p.Status.Phase = map[rune]corev1.PodPhase{
			'q': corev1.PodPending, 'b': corev1.PodPending, 'r': corev1.PodRunning, 's': corev1.PodSucceeded,
			'f': corev1.PodFailed,
		}[state]
		if state != 'q' {
			p.Spec.NodeName = "n0"
		}
		all = append(all, p)
	}
	return all
}

// stepOf returns the status after one step.
func stepOf(g *v1alpha1.PodGroup, all []*corev1.Pod, now metav1.Time) v1alpha1.PodGroupStatus {
	was := progressOf(g, memory{})
	next, _ := gang.Step(was, worldOf(g, all, now.Time))
	return statusOf(g, was, next, now.Time)
}

// TestPhasesOfEachAPI shows one stage in each API group, and reads it again.
func TestPhasesOfEachAPI(t *testing.T) {
	t.Parallel()
	const sigs, community, native = v1alpha1.GroupName, v1alpha1.CommunityGroupName, v1alpha1.NativeGroupName
	for _, c := range []struct {
		group string
		was   v1alpha1.PodGroupPhase
		pods  string
		want  v1alpha1.PodGroupPhase
		stage gang.Stage
	}{
		{sigs, "", "qqq", "PreScheduling", gang.StagePreScheduling},
		{sigs, "Scheduling", "bbb", "Scheduled", gang.StageScheduled},
		{sigs, "Running", "rrq", "Unknown", gang.StageUnknown},
		{community, "", "qqq", "Pending", gang.StagePreScheduling},
		{community, "Pending", "bbq", "Scheduling", gang.StageScheduling},
		{community, "Scheduling", "bbb", "Scheduling", gang.StageScheduled},
		{community, "Scheduling", "rrr", "Running", gang.StageRunning},
		{community, "Running", "sss", "Finished", gang.StageFinished},
		{native, "", "bbq", "", gang.StageScheduling},
		{native, "", "bbb", "Scheduled", gang.StageScheduled},
		{native, "Scheduled", "bbq", "Scheduled", gang.StageUnknown},
	} {
		g := podGroup(c.group, c.was)
		if c.group == native && c.was != "" {
			g.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ScheduledCondition(g.GroupVersionKind()), Status: metav1.ConditionTrue,
			}}
		}
		next, _ := gang.Step(progressOf(g, memory{}), worldOf(g, pods(c.pods), time.Now()))
		if got := stepOf(g, pods(c.pods), metav1.Now()); got.Phase != c.want || next.Stage != c.stage {
			t.Errorf("%s: %q with pods %q is %q, %q, want %q, %q", c.group, c.was, c.pods, got.Phase, next.Stage,
				c.want, c.stage)
		}
		g.Status.Phase = c.want
		if again := progressOf(g, remember(c.group, next)); again.Stage != c.stage && c.want != "" {
			t.Errorf("%s: %q is read as %q, want %q", c.group, c.want, again.Stage, c.stage)
		}
		g.Status.Phase = "Failed" // another writer's
		if again := progressOf(g, remember(c.group, next)); again.Stage != gang.StageFailed {
			t.Errorf("%s: what is remembered of %q replaces Failed by %q", c.group, c.want, again.Stage)
		}
	}
}

func TestStatusSaysWhatPodsDo(t *testing.T) {
	g, all := podGroup(v1alpha1.GroupName, "Scheduling"), pods("qbrsf")
	for i, owner := range []string{"second", "first", "second"} {
		all[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: owner, Controller: new(true)}}
	}
	now := metav1.Unix(5000, 0)
	got := stepOf(g, all, now)
	if got.Scheduled != 4 || got.Running != 1 || got.Succeeded != 1 || got.Failed != 1 ||
		got.OccupiedBy != "ml/first,ml/second" || !got.ScheduleStartTime.Equal(&now) {
		t.Errorf("got %+v", got)
	}
	g.Status = got
	if again := stepOf(g, nil, metav1.Unix(6000, 0)); again.Scheduled != 0 || again.OccupiedBy != got.OccupiedBy ||
		!again.ScheduleStartTime.Equal(&now) {
		t.Errorf("without pods: %+v", again)
	}
	if got := stepOf(podGroup(v1alpha1.CommunityGroupName, ""), all, now); got.Scheduled != 0 {
		t.Errorf("the community's status has no number of scheduled pods: %+v", got)
	}
}

// TestWhatTheSchedulerSaysOfAGangIsOnItsPodGroup with the root cause, before what it says of one pod, until it starts.
func TestWhatTheSchedulerSaysOfAGangIsOnItsPodGroup(t *testing.T) {
	g, all := podGroup(v1alpha1.GroupName, ""), pods("qqqb")
	says := func(i int, status corev1.ConditionStatus, reason, message string) {
		all[i].Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: status, Reason: reason, Message: message,
		}}
	}
	shown := func() (text string) {
		g.Status = stepOf(g, all, metav1.Unix(5000, 0))
		for _, c := range g.Status.Conditions {
			text += fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
		return text
	}
	const sibling = `GangSiblingFailed: 1 of 3 fit. {"code":"GangSiblingFailed","asked":3}`
	for i, c := range []struct {
		event func()
		want  string
	}{
		{func() {}, ""},
		{func() { says(2, "False", "Unschedulable", "0/1 nodes") }, "PodGroupScheduled=False Unschedulable 0/1 nodes"},
		{func() { says(1, "False", "Unschedulable", sibling) }, "PodGroupScheduled=False Unschedulable " + sibling},
		{func() { says(3, "False", "Unschedulable", "old") }, "PodGroupScheduled=False Unschedulable " + sibling},
		{func() { says(1, "False", "SchedulingGated", "later") }, "PodGroupScheduled=False Unschedulable 0/1 nodes"},
		{func() { says(2, "False", "SchedulerError", "no API") }, "PodGroupScheduled=False SchedulerError no API"},
		{func() { says(2, "False", "QuotaExceeded", "no quota") }, "PodGroupScheduled=False QuotaExceeded no quota"},
		{func() { says(2, "True", "", "") }, ""},
		{func() { all = pods("bbrq"); says(3, "False", "Unschedulable", "x") }, "PodGroupScheduled=True Scheduled "},
		{func() { all = pods("q"); says(0, "False", "Unschedulable", "x") }, "PodGroupScheduled=True Scheduled "},
	} {
		c.event()
		if got := shown(); got != c.want {
			t.Errorf("after event %d: %q, want %q", i, got, c.want)
		}
	}
}
