package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// timedObjects are objects with Jobs and pods that have succeeded.
type timedObjects struct {
	whatif.Objects
	jobs  map[string]*batchv1.Job
	ended []corev1.Pod
	fails error
}

func (o *timedObjects) Jobs(context.Context) (map[string]*batchv1.Job, error) { return o.jobs, o.fails }

func (o *timedObjects) Succeeded(context.Context) ([]corev1.Pod, error) { return o.ended, o.fails }

// timed is a scheduler that makes forecasts. Its clock shows noon.
type timed struct {
	*asked
	objects *timedObjects
	now     time.Time
}

var noonOfForecast = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func newTimed(t *testing.T, nodes ...string) *timed {
	t.Helper()
	a := &timed{asked: newAsked(t, nodes...), now: noonOfForecast}
	a.objects = &timedObjects{Objects: a.whatIf.Objects, jobs: map[string]*batchv1.Job{}}
	a.whatIf.Objects, a.whatIf.Clock = a.objects, clockOf(func() time.Time { return a.now })
	return a
}

// forecast returns the expected start of each unit that waits, in the order of the queue.
func (a *timed) forecast() (starts []string) {
	a.t.Helper()
	answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
	testkit.Check(a.t, err)
	for _, u := range answer.Forecast.Queue {
		starts = append(starts, u.Name+" "+u.Start.Text(a.now))
	}
	return starts
}

// since lets a pod have run for some time.
func since(d time.Duration) object.PodOption {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: noonOfForecast.Add(-d)} }
}

// expects declares how long a pod runs.
func expects(d string) object.PodOption { return object.Annotation(annotation.ExpectedRuntime, d) }

// age orders pods in the queue: the older goes first.
func age(minutes int) object.PodOption {
	return object.Created(noonOfForecast.Add(-time.Duration(minutes) * time.Minute))
}

// ownedBy makes a Job the owner.
func ownedBy(job string) object.PodOption {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, Controller: new(true)}}
	}
}

func TestForecast(t *testing.T) {
	full := list(0, 32)
	for name, tt := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"a pod that fits starts now": {
			[]*corev1.Pod{exclusive("a", "2")}, []string{"pod/default/a now"},
		},
		"a pod starts after the end that another one declares": {
			[]*corev1.Pod{bound("r", "n", full, expects("1h"), since(10*time.Minute)), exclusive("a", "2")},
			[]string{"pod/default/a 12:50, after pod/default/r"},
		},
		"a deadline of the pod is an end": {
			[]*corev1.Pod{
				bound("r", "n", full, since(0), func(p *corev1.Pod) {
					p.Spec.ActiveDeadlineSeconds = new(int64(1800))
				}),
				exclusive("a", "2"),
			},
			[]string{"pod/default/a 12:30, after pod/default/r"},
		},
		"without a declared end the start is unknown": {
			[]*corev1.Pod{bound("r", "n", full, since(0)), exclusive("a", "2")},
			[]string{"pod/default/a unknown: pods without a known end hold the room"},
		},
		"a pod that outlived its time may end at any moment": {
			[]*corev1.Pod{bound("r", "n", full, expects("1h"), since(2*time.Hour)), exclusive("a", "2")},
			[]string{"pod/default/a from 12:00, after pod/default/r"},
		},
		"a pod that is larger than a node never starts": {
			[]*corev1.Pod{bound("r", "n", list(0, 2), since(0)), exclusive("a", "34")},
			[]string{"pod/default/a never: it would not fit if no other pod ran"},
		},
		"a pod that terminates ends within its grace period": {
			[]*corev1.Pod{
				bound("r", "n", full, since(0), func(p *corev1.Pod) {
					p.DeletionTimestamp = &metav1.Time{Time: noonOfForecast.Add(5 * time.Minute)}
				}),
				exclusive("a", "2"),
			},
			[]string{"pod/default/a 12:00 to 12:05, after pod/default/r"},
		},
		"the order of the queue decides: priority, then age": {
			[]*corev1.Pod{
				bound("r", "n", full, expects("1h"), since(0)),
				exclusive("young", "28", age(1), expects("2h")), exclusive("old", "28", age(9), expects("3h")),
				exclusive("low", "28", age(99), object.Priority(1)),
			},
			[]string{
				"pod/default/old 13:00, after pod/default/r", "pod/default/young 16:00, after pod/default/old",
				"pod/default/low 18:00, after pod/default/young",
			},
		},
		"a small pod does not wait for a large one before it": {
			[]*corev1.Pod{
				bound("r", "n", list(0, 16), expects("1h"), since(0)), exclusive("large", "28", age(9)),
				exclusive("small", "4", age(1), expects("5m")),
			},
			[]string{"pod/default/large 13:00, after pod/default/r", "pod/default/small now"},
		},
		"members beyond the minimum take room too": {
			[]*corev1.Pod{
				bound("r", "n", full, expects("1h"), since(0)),
				exclusive("g-0", "8", object.Gang("g", "2")), exclusive("g-1", "8", object.Gang("g", "2")),
				exclusive("g-2", "8", object.Gang("g", "2")), exclusive("last", "12", age(-1)),
			},
			[]string{
				"gang/default/g 13:00, after pod/default/r",
				"pod/default/last unknown: pods without a known end hold the room",
			},
		},
		"a gang starts with its minimum": {
			[]*corev1.Pod{
				bound("r", "n", full, expects("1h"), since(0)),
				exclusive("g-0", "12", object.Gang("g", "2"), expects("30m")),
				exclusive("g-1", "12", object.Gang("g", "2"), expects("1h")),
				exclusive("g-2", "12", object.Gang("g", "2")),
				exclusive("last", "12", age(-1)),
			},
			[]string{
				"gang/default/g 13:00, after pod/default/r",
				"pod/default/last unknown: pods without a known end hold the room",
			},
		},
		"a gang without all its members is not estimated": {
			[]*corev1.Pod{exclusive("g-0", "2", object.Gang("g", "2")), exclusive("a", "2")},
			[]string{"gang/default/g unknown: the gang lacks members", "pod/default/a now"},
		},
		"a gated pod does not wait yet": {
			[]*corev1.Pod{exclusive("a", "2", func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
			})},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTimed(t, "n")
			a.know(tt.pods...)
			got := a.forecast()
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAForecastNamesPodsThatOutlivedTheirRunTime, of those after which others start.
func TestAForecastNamesPodsThatOutlivedTheirRunTime(t *testing.T) {
	a := newTimed(t, "n", "m")
	a.know(bound("late", "n", list(0, 32), expects("1h"), since(65*time.Minute)),
		bound("endless", "m", list(0, 32), since(65*time.Minute)), exclusive("a", "16"))
	answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
	testkit.Check(t, err)
	var got []string
	for _, o := range answer.Forecast.Overdue {
		got = append(got, o.Pod+": "+o.Text())
	}
	want := []string{"default/late: the pod has run for 1h5m0s, longer than the 1h0m0s that are declared"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAForecastKeepsQuotas: pods and gangs wait for their quota as for nodes.
func TestAForecastKeepsQuotas(t *testing.T) {
	a := newTimed(t, "n", "m")
	for _, node := range []string{"n", "m"} {
		a.quotas.PutNode(object.Node(node, nil, "cpu", "32"))
	}
	q := object.Quota("quotas/team", nil, object.List("cpu", "16"))
	object.Annotate(q, annotation.ExpectedRuntime, "90m")
	a.quotas.PutQuota(q)
	team := object.Label(annotation.QuotaName, "team")
	a.know(bound("r", "n", list(0, 16), team, since(0)),
		exclusive("g-0", "8", team, age(9), object.Gang("g", "2")),
		exclusive("g-1", "8", team, age(9), object.Gang("g", "2")),
		exclusive("a", "8", team, age(5), expects("1h")), exclusive("other", "8", age(1)))
	want := []string{
		"gang/default/g 13:30, after pod/default/r", "pod/default/a 15:00, after gang/default/g",
		"pod/default/other now",
	}
	if diff := cmp.Diff(want, a.forecast()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAForecastKnowsWhatJobsDeclare: their annotation, and their deadline, which counts from the start of the Job.
func TestAForecastKnowsWhatJobsDeclare(t *testing.T) {
	for name, tt := range map[string]struct {
		job   func(*batchv1.Job)
		fails error
		want  string
	}{
		"an annotation": {
			job:  func(j *batchv1.Job) { object.Annotate(j, annotation.ExpectedRuntime, "2h") },
			want: "pod/default/a 14:00, after job/default/sweep",
		},
		"a deadline": {
			job: func(j *batchv1.Job) {
				j.Spec.ActiveDeadlineSeconds = new(int64(3600))
				j.Status.StartTime = &metav1.Time{Time: noonOfForecast.Add(-20 * time.Minute)}
			},
			want: "pod/default/a 12:40, after job/default/sweep",
		},
		"a deadline far in the future counts as a year": {
			job:  func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(1 << 62)) },
			want: "pod/default/a Mar 4 2027 12:00, after job/default/sweep",
		},
		"an annotation that cannot be read": {
			job:  func(j *batchv1.Job) { object.Annotate(j, annotation.ExpectedRuntime, "soon") },
			want: "pod/default/a unknown: pods without a known end hold the room",
		},
		"no right to list Jobs": {
			job: func(*batchv1.Job) {}, fails: errors.New("jobs is forbidden"),
			want: "pod/default/a unknown: pods without a known end hold the room",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTimed(t, "n")
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
			tt.job(job)
			a.objects.jobs["default/sweep"], a.objects.fails = job, tt.fails
			a.know(bound("r", "n", list(0, 32), since(0), ownedBy("sweep")), exclusive("a", "2"))
			if diff := cmp.Diff([]string{tt.want}, a.forecast()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
			testkit.Check(t, err)
			notes := strings.Join(answer.Forecast.Notes, "; ")
			if (tt.fails != nil) != strings.Contains(notes, "forbidden") {
				t.Errorf("notes %q", notes)
			}
		})
	}
}

// TestRunTimesAreLearned: from pods of the same workload that have succeeded, unless that is off.
func TestRunTimesAreLearned(t *testing.T) {
	for _, learns := range []bool{true, false} {
		a := newTimed(t, "n")
		a.whatIf.Learn = learns
		for i := range 10 {
			ended := *exclusive(fmt.Sprint("e", i), "32", ownedBy(fmt.Sprintf("sweep-%d", 100+i)))
			ended.UID += "ended"
			ended.Spec.NodeName, ended.Status.Phase = "n", corev1.PodSucceeded
			ended.Status.StartTime = &metav1.Time{Time: noonOfForecast.Add(-24 * time.Hour)}
			end := ended.Status.StartTime.Add(time.Duration(i+1) * 10 * time.Minute)
			ended.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(end)},
			}}}
			a.objects.ended = append(a.objects.ended, ended)
		}
		a.know(bound("r", "n", list(0, 32), since(20*time.Minute), ownedBy("sweep-200")), exclusive("a", "2"))
		want := "pod/default/a 12:30 to 13:10, after job/default/sweep-200"
		if !learns {
			want = "pod/default/a unknown: pods without a known end hold the room"
		}
		if diff := cmp.Diff([]string{want}, a.forecast()); diff != "" {
			t.Errorf("learns %t (-want +got):\n%s", learns, diff)
		}
	}
}

func TestAForecastIsMadeAtMostOnceIn10Seconds(t *testing.T) {
	a := newTimed(t, "n")
	a.know(exclusive("a", "2"))
	lengths := []int{len(a.forecast())}
	a.know(exclusive("b", "2"))
	for _, step := range []time.Duration{9 * time.Second, time.Second, -time.Hour} {
		a.now = a.now.Add(step)
		lengths = append(lengths, len(a.forecast()))
		if step == time.Second {
			a.know(exclusive("c", "2"))
		}
	}
	// The last one is made anew, as the clock went back.
	if want := []int{1, 1, 2, 3}; !slices.Equal(lengths, want) {
		t.Errorf("units that wait: %v, want %v", lengths, want)
	}
}

func TestWhatAForecastCannotAnswerIsRefused(t *testing.T) {
	a := newTimed(t, "n")
	for _, question := range []string{
		`{"changes":[{"cordon":"n"}],"ask":{"mode":"forecast"}}`, `{"ask":{"mode":"forecast","pods":["default/a"]}}`,
		`{"ask":{"mode":"forecast","nodes":["n"]}}`, `{"ask":{"mode":"forecast","reserve":true}}`,
		`{"ask":{"mode":"forecast","members":2}}`,
	} {
		if _, err := a.answer(question); err == nil || !strings.Contains(err.Error(), "not for mode forecast") {
			t.Errorf("%s: got %v", question, err)
		}
	}
}

func TestTheQueueShowsRunTimesAndQuotas(t *testing.T) {
	a := newTimed(t, "n")
	a.quotas.PutNode(object.Node("n", nil, "cpu", "32"))
	a.quotas.PutQuota(object.Quota("quotas/org", nil, object.List("cpu", "16"), annotation.QuotaIsParent, "true"))
	a.quotas.PutQuota(object.Quota("quotas/team", nil, object.List("cpu", "16"), annotation.QuotaParent, "org"))
	a.know(exclusive("a", "2", object.Label(annotation.QuotaName, "team"), expects("1h"), age(3)))
	answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
	testkit.Check(t, err)
	want := []view.WaitingUnit{{
		Position: 1, Name: "pod/default/a", Pods: []string{"default/a"}, QuotaPath: []string{"org", "team"},
		Priority: 9000, Since: noonOfForecast.Add(-3 * time.Minute),
		RunTime: &view.RunTime{Likely: "1h0m0s", Late: "1h0m0s", Source: forecast.Annotated},
		Start:   &view.ExpectedStart{State: view.StartsNow, Earliest: &noonOfForecast, Latest: &noonOfForecast},
	}}
	if diff := cmp.Diff(want, answer.Forecast.Queue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAForecastEndsInTime: what it does not estimate until then is counted, and named as such.
func TestAForecastEndsInTime(t *testing.T) {
	a := newTimed(t, "n")
	a.whatIf.Deadline = 2 * time.Second // of the clock of the test
	a.whatIf.Clock = clockOf(func() time.Time {
		a.now = a.now.Add(a.whatIf.Deadline / 8)
		return a.now
	})
	for i := range 20 {
		a.know(exclusive(fmt.Sprintf("a-%02d", i), fmt.Sprint(1+i)))
	}
	answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
	testkit.Check(t, err)
	estimated := 0
	for _, u := range answer.Forecast.Queue {
		if u.Start != nil {
			estimated++
		}
	}
	if n := len(answer.Forecast.Queue); n != 20 || estimated == n || answer.Forecast.Bound != "1.5s" {
		t.Errorf("%d of %d estimated, bound %q", estimated, n, answer.Forecast.Bound)
	}
}
