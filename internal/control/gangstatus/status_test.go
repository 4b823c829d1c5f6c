package gangstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
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

// F12: a phase stays although the pods have gone on.
func TestPhases(t *testing.T) {
	const sigs, community = v1alpha1.GroupName, v1alpha1.CommunityGroupName
	for _, c := range []struct {
		group string
		was   v1alpha1.PodGroupPhase
		pods  string
		want  v1alpha1.PodGroupPhase
	}{
		{sigs, "", "", "Pending"},
		{sigs, "", "q", "PreScheduling"},
		{sigs, "", "qqq", "PreScheduling"},
		{sigs, "PreScheduling", "bbq", "Scheduling"},
		{sigs, "Scheduling", "qqq", "PreScheduling"},
		{sigs, "Scheduling", "bbb", "Scheduled"},
		{sigs, "Scheduled", "rrb", "Scheduled"},
		{sigs, "Scheduled", "rrr", "Running"},
		{sigs, "Scheduled", "rrrq", "Running"},
		{sigs, "", "rrr", "Running"},
		{sigs, "Running", "rss", "Running"},
		{sigs, "Running", "sss", "Finished"},
		{sigs, "Running", "sssf", "Finished"},
		{sigs, "Running", "ssf", "Failed"},
		{sigs, "Running", "rrf", "Unknown"},
		{sigs, "Running", "rrq", "Unknown"},
		{sigs, "Unknown", "rrb", "Scheduled"},
		// another set of pods starts anew after the end of the former, or when no pod of it is left
		{sigs, "Failed", "ssq", "PreScheduling"},
		{sigs, "Finished", "sssbq", "Scheduling"},
		{sigs, "Finished", "qqq", "PreScheduling"},
		{sigs, "Running", "", "Pending"},
		{sigs, "Finished", "", "Finished"},
		{sigs, "Failed", "", "Failed"},
		{sigs, "Unknown", "q", "Unknown"},
		// one that never had its minimum
		{sigs, "Scheduling", "ff", "Scheduling"},
		{sigs, "Scheduling", "", "Pending"},
		{community, "", "qqq", "Pending"},
		{community, "Pending", "bbq", "Scheduling"},
		{community, "Scheduling", "bbb", "Scheduling"},
		{community, "Scheduling", "rrr", "Running"},
		{community, "Running", "sss", "Finished"},
	} {
		if got := statusOf(podGroup(c.group, c.was), pods(c.pods), metav1.Now()); got.Phase != c.want {
			t.Errorf("%s: %q with pods %q is %q, want %q", c.group, c.was, c.pods, got.Phase, c.want)
		}
	}
}

func TestStatusSaysWhatPodsDo(t *testing.T) {
	g, all := podGroup(v1alpha1.GroupName, "Scheduling"), pods("qbrsf")
	for i, owner := range []string{"second", "first", "second"} {
		all[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: owner, Controller: new(true)}}
	}
	now := metav1.Unix(5000, 0)
	got := statusOf(g, all, now)
	if got.Scheduled != 4 || got.Running != 1 || got.Succeeded != 1 || got.Failed != 1 ||
		got.OccupiedBy != "ml/first,ml/second" || !got.ScheduleStartTime.Equal(&now) {
		t.Errorf("got %+v", got)
	}
	g.Status = got
	if again := statusOf(g, nil, metav1.Unix(6000, 0)); again.Scheduled != 0 || again.OccupiedBy != got.OccupiedBy ||
		!again.ScheduleStartTime.Equal(&now) {
		t.Errorf("without pods: %+v", again)
	}
	if got := statusOf(podGroup(v1alpha1.CommunityGroupName, ""), all, now); got.Scheduled != 0 {
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
		g.Status = statusOf(g, all, metav1.Unix(5000, 0))
		for _, c := range g.Status.Conditions {
			text += fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
		return text
	}
	const sibling = `1 of 3 fit {"code":"GangSiblingFailed","rootCause":{"pod":"ml/train-2","code":"InsufficientCPU"}}`
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

// TestTheOldestPodSaysHowManyMustStart before annotations and spec of the PodGroup.
func TestTheOldestPodSaysHowManyMustStart(t *testing.T) {
	g, all := podGroup(v1alpha1.GroupName, ""), pods("rr")
	phase := func(want v1alpha1.PodGroupPhase) {
		t.Helper()
		if got := statusOf(g, all, metav1.Now()).Phase; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	phase("Scheduling")
	g.Annotations = map[string]string{annotation.GangMinAvailable: "2"}
	phase("Running")
	all[0].Annotations = map[string]string{annotation.GangMinAvailable: "1"} // younger
	all[1].Annotations = map[string]string{annotation.GangMinAvailable: "4"}
	phase("Scheduling")
	g.Annotations, g.Spec.MinMember, all = nil, 0, pods("r")
	phase("Running")
	all[0].Annotations = map[string]string{annotation.GangTotalNumber: "2"}
	phase("Scheduling")
}

// TestAGangThatHasStartedStaysStartedWhileItHasPods, whatever becomes of its pods, and each status is that of the
// pods alone.
//
// F23: counters that are raised and lowered end up wrong.
func TestAGangThatHasStartedStaysStartedWhileItHasPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := podGroup(v1alpha1.GroupName, "")
		for range 20 {
			was := g.Status.Phase
			states := rapid.StringOfN(rapid.SampledFrom([]rune("qbrsf")), 0, 5, -1).Draw(t, "pods")
			g.Status = statusOf(g, pods(states), metav1.NewTime(time.Now()))
			has := 0
			for _, state := range states {
				if state != 'q' {
					has++
				}
			}
			active := strings.ContainsAny(states, "qbr")
			if was.IsFinal() && active {
				has = strings.Count(states, "b") + strings.Count(states, "r")
			}
			stays := was.IsUnderWay() && states != "" || was.IsFinal() && !active
			if phase := g.Status.Phase; phase.IsStarted() != (stays || has >= 3) {
				t.Fatalf("%q with %q is %q", was, states, phase)
			}
			if got := int(g.Status.Scheduled); got != has {
				t.Fatalf("%d of %q have a node", got, states)
			}
		}
	})
}
