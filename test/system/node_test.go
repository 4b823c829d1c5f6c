package system

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestOnOneNode is what users see of pods and gangs on a cluster of one node, each case from the empty node.
func TestOnOneNode(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", "arm64-1s", "--autoscaled")
	for _, c := range []struct {
		name string
		test func(*testing.T, *local)
	}{
		{"explain shows changes of a cgroup by hand", explainShowsChangesOfACgroupByHand},
		{"a question about a pod is answered until its ttl has passed", aQuestionIsAnsweredUntilItsTTL},
		{"what a gang waits for can be read", whatAGangWaitsForCanBeRead},
		{"pods of an operator start together", anOperatorsPodsStartTogether},
		{"Kueue beside an ElasticQuota", kueueBesideAQuota},
		{"a gang holds the node until its start", aGangHoldsTheNodeUntilItsStart},
		{"the manager serves autoscalers", theManagerServesAutoscalers},
		{"a NonStrict gang that times out is tried again", aNonStrictGangThatTimesOutIsTriedAgain},
		{"a pod takes room that is kept for it and comes later", aPodTakesRoomThatComesLater},
		{"no more is evicted than the preemptor needs", noMoreIsEvictedThanThePreemptorNeeds}, // its Deployment remains
	} {
		l.clear(t)
		t.Run(c.name, func(t *testing.T) { c.test(t, l) })
	}
}

// clear deletes the pods of the default namespace and waits until they are gone.
func (l *local) clear(t *testing.T) {
	t.Helper()
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	testkit.Check(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	waitFor(t, time.Minute, "all pods to be gone", func() error {
		left, err := pods.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	})
}
