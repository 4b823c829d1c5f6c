package status

import (
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestEventsSayWhichNodesAgentTheyAreFrom(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]string{
		"n0":                     "tenon-agent-n0",
		strings.Repeat("n", 200): "tenon-agent-" + strings.Repeat("n", 116),
	} {
		client := fake.NewClientset()
		sent := &eventsv1.Event{
			ObjectMeta:        metav1.ObjectMeta{Namespace: "default", Name: "e"},
			ReportingInstance: "tenon-agent-some-pod",
		}
		got, err := NewSink(client, node).Create(t.Context(), sent)
		if err != nil || got.ReportingInstance != want || sent.ReportingInstance != "tenon-agent-some-pod" {
			t.Errorf("node %s: reportingInstance %q (%v), and %q of what was handed in; want %q, and no change", node,
				got.ReportingInstance, err, sent.ReportingInstance, want)
		}
	}
}
