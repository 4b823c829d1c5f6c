package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
)

// tenMembers is a gang of ten pods of 2 CPUs on two nodes that just hold them. annotations are more of its pods.
func tenMembers(annotations string) string {
	in := ""
	for _, n := range []string{"n0", "n1"} {
		in += fmt.Sprintf("\n{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {capacity: {cpu: 10, memory: "+
			"64Gi, pods: 110}, allocatable: {cpu: 10, memory: 64Gi, pods: 110}}}\n---", n)
	}
	for i := range 10 {
		in += pod2CPUs(fmt.Sprint("m", i), strings.TrimSuffix(says("g", 10), "}")+annotations+"}", 0)
	}
	return in
}

// pod2CPUs is a pod of 2 CPUs, created on the first day of 2026.
func pod2CPUs(name, metadata string, priority int) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, "+
		"creationTimestamp: '2026-01-01T00:00:00Z'%s}, spec: {priority: %d, containers: [{name: c, image: i, "+
		"resources: {requests: {cpu: 2}}}]}}\n---", name, metadata, priority)
}

// stopsAt returns what the API server has after each number of Bindings at which a scheduler can stop, with the time of
// each Binding in the pod's condition.
func stopsAt(t *testing.T, in string) map[int]map[string]*corev1.Pod {
	t.Helper()
	_, steps, _ := killed(t, in, 0)
	stops := map[int]map[string]*corev1.Pod{}
	for i, step := range steps {
		if step != bindStep {
			continue
		}
		api, _, _ := killed(t, in, i+1)
		bound := 0
		for _, p := range api {
			if p.Spec.NodeName != "" {
				bound++
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.Date(2026, 1, 2, 0, 0, bound, 0, time.UTC),
				}}
			}
		}
		stops[bound] = api
	}
	if len(stops) != 11 {
		t.Fatalf("it stopped after %d different numbers of Bindings, want 0 to 10", len(stops))
	}
	return stops
}

// resume lets a new engine decide about what an API server has.
func resume(t *testing.T, in string, api map[string]*corev1.Pod) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, in, api)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	r, err := e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	return r
}

// membersOn returns how many members have a node, and the messages of the others.
func membersOn(r Result) (bound int, messages []string) {
	for _, p := range r.Pods {
		switch {
		case !strings.HasPrefix(p.Name, "m"):
		case p.Node != "" && p.State != Preempted:
			bound++
		default:
			for _, reason := range p.Reasons {
				messages = append(messages, reason.Message)
			}
		}
	}
	return bound, messages
}

// TestAGangIsHalfBoundAfterTheSchedulerStoppedInItsBindings: it stops before and after each of ten Bindings. With room
// for the rest all ten are bound by the next scheduler; where other pods have taken the room of one member no more are
// bound, whose message says so; and with pods of lower priority in that room these are evicted.
func TestAGangIsHalfBoundAfterTheSchedulerStoppedInItsBindings(t *testing.T) {
	in := tenMembers("")
	for stop, api := range stopsAt(t, in) {
		if bound, messages := membersOn(resume(t, in, api)); bound != 10 {
			t.Errorf("stopped after %d Bindings, with room: %d are bound, and the others say %q", stop, bound, messages)
		}
		if stop == 10 {
			continue
		}
		r := resume(t, in+pod2CPUs("other", "", 1000), api)
		bound, messages := membersOn(r)
		if bound != stop || stateOf(r, "other").Node == "" {
			t.Errorf("stopped after %d Bindings, without room: %d are bound, want as many as then; other is %+v", stop,
				bound, stateOf(r, "other"))
		}
		text := fmt.Sprintf("%d of 10 bound when the scheduler stopped; the rest does not fit: of gang default/g only ",
			stop)
		if says := func(m string) bool { return strings.HasPrefix(m, text) }; stop > 0 && stop < 9 &&
			!slices.ContainsFunc(messages, says) {
			t.Errorf("stopped after %d Bindings, the pending ones say %q, want %q", stop, messages, text)
		}
		free := "n0"
		if countOn(api, free) == 5 {
			free = "n1"
		}
		low := strings.Replace(pod2CPUs("low", "", -1), "spec: {", "spec: {nodeName: "+free+", ", 1)
		r = resume(t, in+low, api)
		if bound, messages := membersOn(r); bound != 10 || stateOf(r, "low").State != Preempted {
			t.Errorf("stopped after %d Bindings, and a pod of lower priority: %d are bound, the others say %q, and "+
				"that pod is %+v", stop, bound, messages, stateOf(r, "low"))
		}
	}
}

func countOn(pods map[string]*corev1.Pod, node string) (n int) {
	for _, p := range pods {
		if p.Spec.NodeName == node {
			n++
		}
	}
	return n
}

// TestReplacementsOfMembersAreHeldBackAfterARestart: a gang of ten started whole, and four of its members were deleted
// and created again while no scheduler ran. As many of them as fit follow, whatever the others do.
func TestReplacementsOfMembersAreHeldBackAfterARestart(t *testing.T) {
	in := tenMembers("")
	api := stopsAt(t, in)[10]
	for i := range 4 {
		p := api[fmt.Sprint("m", i)]
		p.Spec.NodeName, p.Status.Conditions = "", nil
		p.UID += "-again"
		p.CreationTimestamp = metav1.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	}
	r := resume(t, in+pod2CPUs("other", "", 1000), api)
	if bound, messages := membersOn(r); bound != 9 || stateOf(r, "other").Node == "" {
		t.Errorf("%d members are bound, the others say %q, want 9; other is %+v", bound, messages, stateOf(r, "other"))
	}
}

// TestANonStrictGangIsHeldBackAfterTheSchedulerStopped: its members follow one by one, as before.
func TestANonStrictGangIsHeldBackAfterTheSchedulerStopped(t *testing.T) {
	in := tenMembers(", " + annotation.GangMode + ": NonStrict")
	api := stopsAt(t, in)[4]
	if bound, messages := membersOn(resume(t, in+pod2CPUs("other", "", 1000), api)); bound != 9 {
		t.Errorf("%d members are bound, the others say %q, want 9", bound, messages)
	}
}

// TestTheRestOfAnInterruptedGangGetsNodesThatWereKeptForAnOlderOne: of gang new one member was bound when the scheduler
// stopped, and both nodes were kept for gang old, which waits for the end of that member.
func TestTheRestOfAnInterruptedGangGetsNodesThatWereKeptForAnOlderOne(t *testing.T) {
	member := func(gang string, i, created int, spec string) string {
		metadata := says(gang, 2) + fmt.Sprintf(", creationTimestamp: '2026-01-01T00:00:0%dZ'", created)
		return cpuPod(fmt.Sprint(gang, i), 4, metadata, spec)
	}
	const nominated = "}, status: {nominatedNodeName: "
	r, _ := simulate(t, cpuNode("n0", 4)+cpuNode("n1", 4)+member("old", 0, 1, nominated+"n0")+
		member("old", 1, 1, nominated+"n1")+member("new", 0, 2, ", nodeName: n0")+member("new", 1, 2, ""), "-")
	if got, want := nodesOf(r), "new1 n1"; got != want {
		t.Errorf("got %q, want %q\n%+v", got, want, r.Pods)
	}
}
