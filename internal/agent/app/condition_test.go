package app

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
)

func TestLongMessageOfAConditionIsNotRefusedByThePolicy(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	client := fake.NewClientset(node)
	var wrote []corev1.NodeCondition
	c := &conditions{
		client: client, node: "n", clock: clock.RealClock{}, last: map[string]corev1.NodeCondition{},
		current: func() *corev1.Node { return node },
		wrote:   func(cond corev1.NodeCondition) { wrote = append(wrote, cond) },
	}
	for range 2 { // the second message is the same and is not written again
		if err := c.set(t.Context(), StateUnreadable, true, "Unusable", strings.Repeat("é", 2000)); err != nil {
			t.Fatal(err)
		}
	}
	if len(wrote) != 1 || len(wrote[0].Message) > 1024 || !strings.HasSuffix(wrote[0].Message, "é…") {
		t.Errorf("wrote %d conditions %v, want one with at most 1024 bytes that ends in é…", len(wrote), wrote)
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Message != wrote[0].Message {
		t.Errorf("the Node has %v, %v; want the condition written", got.Status.Conditions, err)
	}
}
