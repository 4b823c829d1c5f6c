package refusals

import (
	"strings"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestMessageEndsWithWhatCameOfPreemption(t *testing.T) {
	for name, c := range map[string]struct{ outcome, want string }{
		"no victims on the nodes that eviction could help": {
			outcome: "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 " +
				"Preemption is not helpful for scheduling.",
			want: " preemption: 1 No preemption victims found for incoming pod. {",
		},
		"victims are still terminating": {
			outcome: "preemption: not eligible due to a terminating pod on the nominated node.",
			want:    " preemption: 1 waiting for pods on the nominated node to terminate. {",
		},
		"the pod never preempts": {outcome: "preemption: not eligible due to preemptionPolicy=Never."},
		"victims were found": {
			outcome: "preemption: found a potential placement for pod on node c, preempting 2 victims",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b", "c")
			pod := testPod("p")
			pod.Status.NominatedNodeName = "c"
			testkit.Check(t, b.client.Tracker().Add(pod))
			b.refuseAfterPreemption(t, pod, map[string]*fwk.Status{"a": tainted(), "b": tainted(), "c": full()},
				c.outcome)
			message := b.condition(t, "p")
			if !strings.HasPrefix(message, "InsufficientCPU: 0/3 nodes are available: ") {
				t.Errorf("got %s, want the root cause first", message)
			}
			if c.want == "" && strings.Contains(message, "preemption") || !strings.Contains(message, c.want) {
				t.Errorf("got %s, want %q", message, c.want)
			}
		})
	}
}

func TestPreemptionIsReportedWithTheRerunFilters(t *testing.T) {
	b := newBench(t, "a")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	statuses := map[string]*fwk.Status{"a": full()}
	fit := &framework.FitError{
		Pod: pod, NumAllNodes: 1,
		Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewNodeToStatus(statuses, nil)},
	}
	b.verdict.Findings, _ = Attempt(b.framework, pod, fwk.NewStatus(fwk.Unschedulable).WithError(fit))
	b.refuseAfterPreemption(t, pod, statuses,
		"preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	if message := b.condition(t, "p"); !strings.Contains(message,
		" preemption: 1 No preemption victims found for incoming pod. {") {
		t.Errorf("got %s, want the outcome of preemption too", message)
	}
}
