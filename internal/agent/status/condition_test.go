package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/testkit"
)

// agentOf is the agent of a Node that it does not leave.
type agentOf struct{ node *corev1.Node }

func (a agentOf) CurrentNode() *corev1.Node { return a.node }
func (agentOf) Leaves() bool                { return false }

func TestLongMessageOfAConditionIsNotRefusedByThePolicy(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	client := fake.NewClientset(node)
	sent := events.NewFakeRecorder(10)
	r := New(Options{
		Client: client, Node: "n", Agent: agentOf{node}, Recorder: sent, Metrics: NewMetrics(),
		Clock: clock.RealClock{},
	})
	for range 2 { // the second message is the same and is not written again
		err := r.Set(t.Context(), event.KubeletStateUnreadable, true, "Unusable", strings.Repeat("é", 2000))
		testkit.Check(t, err)
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || len(got.Status.Conditions) != 1 {
		t.Fatalf("the Node has %v, %v; want the condition", got.Status.Conditions, err)
	}
	wrote := got.Status.Conditions[0].Message
	if len(wrote) > 1024 || !strings.HasSuffix(wrote, "é…") {
		t.Errorf("wrote %q, want at most 1024 bytes that end in é…", wrote)
	}
	if len(sent.Events) != 1 {
		t.Errorf("%d Events, want one with the only write", len(sent.Events))
	} else if e := <-sent.Events; e != "Warning KubeletStateUnreadable "+wrote {
		t.Errorf("Event %q, want the condition's message", e)
	}
}
