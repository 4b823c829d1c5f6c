package convert_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func startedAt(t time.Time) object.PodOption {
	return func(p *corev1.Pod) { p.Spec.NodeName, p.Status.StartTime = "n", &metav1.Time{Time: t} }
}

func podDeadline(seconds int64) object.PodOption {
	return func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
}

func jobWith(annotation string, deadline int64) *batchv1.Job {
	j := &batchv1.Job{}
	j.Annotations = map[string]string{"tenon.sh/expected-runtime": annotation}
	if annotation == "" {
		j.Annotations = nil
	}
	if deadline != 0 {
		j.Spec.ActiveDeadlineSeconds = &deadline
	}
	j.Status.StartTime = &metav1.Time{Time: started}
	return j
}

func TestDeclared(t *testing.T) {
	t.Parallel()
	expects := func(text string) object.PodOption { return object.Annotation(annotation.ExpectedRuntime, text) }
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		job  *batchv1.Job
		want forecast.Declaration
	}{
		"nothing": {object.Pod("p"), nil, forecast.Declaration{}},
		"an annotation": {
			object.Pod("p", expects("60m")), nil, forecast.Declaration{Pod: time.Hour},
		},
		"an annotation that cannot be read":   {object.Pod("p", expects("soon")), nil, forecast.Declaration{}},
		"a negative annotation":               {object.Pod("p", expects("-1h")), nil, forecast.Declaration{}},
		"an annotation of more than a year":   {object.Pod("p", expects("8761h")), nil, forecast.Declaration{}},
		"an annotation of less than a second": {object.Pod("p", expects("999ms")), nil, forecast.Declaration{}},
		"a deadline": {
			object.Pod("p", podDeadline(60)), nil, forecast.Declaration{PodDeadline: time.Minute},
		},
		"the shortest deadline": {
			object.Pod("p", podDeadline(1)), nil, forecast.Declaration{PodDeadline: time.Second},
		},
		"a negative deadline": {object.Pod("p", podDeadline(-60)), nil, forecast.Declaration{}},
		"a deadline that overflows": {
			object.Pod("p", podDeadline(1<<62)), nil, forecast.Declaration{PodDeadline: forecast.Longest},
		},
		"of the Job": {
			object.Pod("p"), jobWith("1h", 60), forecast.Declaration{Owner: time.Hour, JobDeadline: time.Minute},
		},
		"a Job that started before the pod": {
			object.Pod("p", startedAt(started.Add(20*time.Second))), jobWith("", 60),
			forecast.Declaration{JobDeadline: 40 * time.Second},
		},
		"a pod that starts when the deadline of its Job is over": {
			object.Pod("p", startedAt(started.Add(time.Hour))), jobWith("", 60),
			forecast.Declaration{JobDeadline: time.Second},
		},
		"a Job whose clock is ahead of that of the node": {
			object.Pod("p", startedAt(started.Add(-time.Hour))), jobWith("", 60),
			forecast.Declaration{JobDeadline: time.Minute},
		},
		"a Job with what cannot be read": {object.Pod("p"), jobWith("1 day", -5), forecast.Declaration{}},
	} {
		if got := convert.Declared(c.pod, c.job); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestRan(t *testing.T) {
	t.Parallel()
	ended := func(phase corev1.PodPhase, ends ...time.Time) *corev1.Pod {
		p := object.Pod("p", startedAt(started), object.Phase(phase))
		for _, at := range ends {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					FinishedAt: metav1.NewTime(at),
				}},
			})
		}
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want time.Duration
	}{
		"to the end of the last container": {
			ended(corev1.PodSucceeded, started.Add(time.Hour), started.Add(time.Minute)), time.Hour,
		},
		"a pod that failed":  {ended(corev1.PodFailed, started.Add(time.Hour)), 0},
		"a pod that runs":    {ended(corev1.PodRunning), 0},
		"without containers": {ended(corev1.PodSucceeded), 0},
	} {
		from, to := convert.Ran(c.pod)
		if got := to.Sub(from); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	run := func(kind, owner string, options ...object.PodOption) string {
		return convert.Workload(object.Pod("p", append(options, func(p *corev1.Pod) {
			if kind != "" {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
			}
		})...))
	}
	image := func(name string) object.PodOption { return object.Container("c", name) }
	elsewhere := func(p *corev1.Pod) { p.Namespace = "x" }
	sweep := run("Job", "sweep-x7k2p", image("a"))
	for name, c := range map[string]struct {
		other string
		same  bool
	}{
		"another generated name":     {run("Job", "sweep-b4ndw", image("a")), true},
		"a run of a CronJob":         {run("Job", "sweep-29312345", image("a")), true},
		"another name":               {run("Job", "train-x7k2p", image("a")), false},
		"another kind":               {run("ReplicaSet", "sweep-x7k2p", image("a")), false},
		"another image":              {run("Job", "sweep-x7k2p", image("b")), false},
		"a word is not generated":    {run("Job", "sweep-large", image("a")), false},
		"the same in another pod":    {run("Job", "sweep-x7k2p", image("a"), object.UID("u")), true},
		"another namespace":          {run("Job", "sweep-x7k2p", image("a"), elsewhere), false},
		"a pod without an owner":     {run("", "", image("a")), false},
		"other amounts, and no less": {run("Job", "sweep-x7k2p", image("a"), object.Requests("cpu", "3")), false},
	} {
		if (c.other == sweep) != c.same {
			t.Errorf("%s: %s and %s", name, sweep, c.other)
		}
	}
	hashed := object.Label("pod-template-hash", "5d4f")
	if a, b := run("ReplicaSet", "web-5d4f", hashed), run("ReplicaSet", "web"); a != b {
		t.Errorf("the hash of a ReplicaSet counts: %s and %s", a, b)
	}
}
