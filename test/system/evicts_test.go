package system

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestABestEffortPodIsEvictedForMemory runs a best-effort pod and a service on a node, both of which use memory, and
// lets the ConfigMap set a bound of it that is exceeded: the agent of the node, with its own account, evicts the
// best-effort pod, and an Event says why. The service is left.
func TestABestEffortPodIsEvictedForMemory(t *testing.T) {
	l := up(t, 1, "--machine", "arm64-1s")
	pods := l.client.CoreV1().Pods("default")
	uids := map[string]string{}
	for _, p := range []*corev1.Pod{
		pod("nightly-evicted", object.Class("BE"), simulate(t, "1", "64Gi", annotation.Simulate{})),
		pod("beside", object.Class("LS"), object.Requests("cpu", "1"), simulate(t, "1", "16Gi", annotation.Simulate{})),
	} {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "arm64-1s-0"}
		made, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
		uids[p.Name] = string(made.UID)
	}
	for name := range uids {
		waitFor(t, time.Minute, name+" to run", func() error {
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && p.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s", p.Status.Phase)
			}
			return err
		})
	}
	maps := l.client.CoreV1().ConfigMaps("tenon-system")
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "slo-controller-config"}, Data: map[string]string{
			"resource-threshold-config": `{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":20}}`,
		},
	}
	_, err := maps.Create(t.Context(), config, metav1.CreateOptions{})
	testkit.Check(t, err)
	waitFor(t, time.Minute, "nightly-evicted to be evicted", func() error {
		if p, err := pods.Get(t.Context(), "nightly-evicted", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("it is there with the conditions %v", p.Status.Conditions))
		}
		events, err := l.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range events.Items {
			e := &events.Items[i]
			if string(e.InvolvedObject.UID) == uids["nightly-evicted"] && e.Reason == event.BestEffortEvicted.String() {
				t.Log(e.Message)
				return nil
			}
		}
		return fmt.Errorf("none of %d Events says so", len(events.Items))
	})
	p, err := pods.Get(t.Context(), "beside", metav1.GetOptions{})
	testkit.Check(t, err)
	if string(p.UID) != uids["beside"] || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		t.Errorf("the service is %s, deleted at %v", p.Status.Phase, p.DeletionTimestamp)
	}
}
