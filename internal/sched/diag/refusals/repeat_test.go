package refusals

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestCausesChangeWithWhoRefusesForWhatAndHowOften(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	causesFrom := func(a, bb, c *fwk.Status, outcome string) causes {
		fit := &framework.FitError{Diagnosis: framework.Diagnosis{
			NodeToStatus:  framework.NewNodeToStatus(map[string]*fwk.Status{"a": a, "b": bb, "c": c}, nil),
			PostFilterMsg: outcome,
		}}
		return causesOf(b.framework, fwk.NewStatus(fwk.Unschedulable).WithError(fit))
	}
	memory := fwk.NewStatus(fwk.Unschedulable, "Insufficient memory").WithPlugin(names.NodeResourcesFit)
	both := fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu",
		"Insufficient memory").WithPlugin(names.NodeResourcesFit)
	was := causesFrom(full(), full(), tainted(), "")
	if got := causesFrom(tainted(), full(), full(), ""); got != was {
		t.Error("which node it is must not count")
	}
	for what, got := range map[string]causes{
		"a node more with the other cause": causesFrom(full(), tainted(), tainted(), ""),
		"another resource":                 causesFrom(full(), memory, tainted(), ""),
		"a second cause on a node":         causesFrom(full(), both, tainted(), ""),
		"the outcome of preemption":        causesFrom(full(), full(), tainted(), "preemption: none"),
	} {
		if got == was || got == 0 {
			t.Errorf("%s: got %d, as before", what, got)
		}
	}
	if got := causesOf(b.framework, fwk.NewStatus(fwk.Error, "broken")); got != 0 {
		t.Errorf("an error has no causes: got %d", got)
	}
}

func TestARepeatedRefusalIsCountedAndNotReadAgain(t *testing.T) {
	b := newBench(t, "a", "b")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	statuses := map[string]*fwk.Status{"a": full(), "b": tainted()}
	b.refuse(t, pod, statuses)
	first, _ := b.reporter.last(pod.UID)
	b.now = b.now.Add(time.Second)
	b.refuse(t, pod, statuses)
	second, _ := b.reporter.last(pod.UID)
	if second.read != first.read || second.at != b.now || second.message != first.message {
		t.Errorf("got read %s, at %s, message %q; want the first reading and the second time", second.read, second.at,
			second.message)
	}
	if len(second.counted) != 2 {
		t.Errorf("got %v, want both codes to be counted again", second.counted)
	}
	b.now = b.now.Add(repeatAfter)
	b.refuse(t, pod, statuses)
	if third, _ := b.reporter.last(pod.UID); third.read != b.now {
		t.Error("after a minute the numbers must be read again")
	}
	b.reporter.forget(pod)
	gone := &framework.PodInfo{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}}}
	if b.reporter.repeats(&framework.QueuedPodInfo{PodInfo: gone}, first.causes) {
		t.Error("a pod that is gone must not come back")
	}
}

// summarized is a profile that knows a summary of each refusal.
type summarized struct {
	*refusing
	reasons string
	hash    uint64
}

func (s *summarized) Summary(*framework.FitError) (string, uint64, bool) {
	return s.reasons, s.hash, true
}

func (s *summarized) Retain(*framework.FitError) bool { return true }

// TestASummaryStandsForTheNodes: of a refusal that the profile knows a summary of, no node is read, what upstream's
// handler gets has the same text and plugins, and a change of the summary is another cause.
func TestASummaryStandsForTheNodes(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	statuses := map[string]*fwk.Status{"a": full(), "b": full(), "c": tainted()}
	fit := &framework.FitError{Pod: testPod("p"), NumAllNodes: 3, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewNodeToStatus(statuses, nil), UnschedulablePlugins: sets.New("NodeResourcesFit"),
		PendingPlugins: sets.New("Ours"), PostFilterMsg: "preemption: none.",
	}}
	status := fwk.NewStatus(fwk.Unschedulable).WithError(fit)
	f := &summarized{b.framework, "1 " + tainted().Message() + ", 2 " + full().Message(), 5}
	short := brief(f, status)
	said := fitOf(short)
	if short.Message() != status.Message() || short.Code() != status.Code() || said.Diagnosis.NodeToStatus.Len() != 0 {
		t.Errorf("got %q with %d nodes, want %q with none", short.Message(), said.Diagnosis.NodeToStatus.Len(),
			status.Message())
	}
	if !said.Diagnosis.UnschedulablePlugins.Has("NodeResourcesFit") || !said.Diagnosis.PendingPlugins.Has("Ours") {
		t.Errorf("got %+v, want the plugins of the refusal", said.Diagnosis)
	}
	was := causesOf(f, status)
	f.hash = 6
	if now := causesOf(f, status); was == 0 || now == was {
		t.Errorf("got the causes %d after %d, want others", now, was)
	}
	if got := brief(b.framework, status); got != status {
		t.Errorf("got %v for a profile without summaries, want the status itself", got)
	}
}
