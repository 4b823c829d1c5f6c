package system

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/scalehelper"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// beyondAReservation lets a Reservation hold most of the only node, and a pod wait that fits the node by amounts alone.
// The node is kept from autoscalers, and the pod gets a helper pod, which names it. release deletes the Reservation.
func beyondAReservation(t *testing.T, l *local, name string) (cpus int64, release func()) {
	t.Helper()
	nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	node := &nodes.Items[0]
	cpus = node.Status.Allocatable.Cpu().Value() * 6 / 10
	l.apply(t, fmt.Sprintf(`apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: kept}
spec:
  owners: [{labelSelector: {matchLabels: {app: later}}}]
  template:
    spec:
      schedulerName: tenon-scheduler
      containers: [{name: main, image: app, resources: {requests: {cpu: %d, memory: 1Gi}}}]
`, cpus))
	l.keeps(t, node.Name, "true")
	p, err := l.client.CoreV1().Pods("default").Create(t.Context(),
		pod(name, object.Both("cpu", fmt.Sprint(cpus), "memory", "1Gi")), metav1.CreateOptions{})
	testkit.Check(t, err)
	waitFor(t, 3*time.Minute, "a helper pod for "+name, func() error {
		helpers, err := l.helpers(t)
		switch {
		case err != nil:
			return err
		case len(helpers) != 1:
			return fmt.Errorf("there are %d", len(helpers))
		}
		h := &helpers[0]
		if h.Labels[annotation.ScaleHelper] != string(p.UID) || len(h.Status.Conditions) != 1 ||
			h.Status.Conditions[0].Reason != corev1.PodReasonUnschedulable {
			return fmt.Errorf("it has labels %v and conditions %v", h.Labels, h.Status.Conditions)
		}
		return nil
	})
	return cpus, func() {
		out, err := l.tenon("kubectl", "delete", "reservation", "kept")
		if err != nil {
			t.Fatal(err, out)
		}
		l.keeps(t, node.Name, "")
	}
}

func (l *local) helpers(t *testing.T) ([]corev1.Pod, error) {
	t.Helper()
	all, err := l.client.CoreV1().Pods(scalehelper.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// keeps waits until the annotations by which autoscalers keep a node have a value.
func (l *local) keeps(t *testing.T, node, value string) {
	t.Helper()
	waitFor(t, time.Minute, "autoscalers to know about "+node, func() error {
		n, err := l.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, key := range []string{annotation.ScaleDownDisabled, annotation.DoNotDisrupt} {
			if n.Annotations[key] != value {
				return fmt.Errorf("%s is %q", key, n.Annotations[key])
			}
		}
		return nil
	})
}

// starts waits until a pod has a node and no helper pod is left.
func (l *local) starts(t *testing.T, name string) (node string) {
	t.Helper()
	waitFor(t, 3*time.Minute, name+" to have a node, and its helper pod to be gone", func() error {
		p, err := l.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node = p.Spec.NodeName; node == "" {
			return errors.New("it has none")
		}
		helpers, err := l.helpers(t)
		if err == nil && len(helpers) > 0 {
			err = fmt.Errorf("%d helper pods are left", len(helpers))
		}
		return err
	})
	return node
}

// theManagerServesAutoscalers: the pod starts where the Reservation was, and nothing that was written remains.
func theManagerServesAutoscalers(t *testing.T, l *local) {
	t.Helper()
	_, release := beyondAReservation(t, l, "beyond")
	release()
	l.starts(t, "beyond")
}

// TestKarpenterAddsANodeForAHelperPod: for the pod itself Karpenter adds none, since it fits by amounts. It gets the
// node that is added for its helper pod.
func TestKarpenterAddsANodeForAHelperPod(t *testing.T) {
	k := newKarpenter(t, "--autoscaled")
	cpus, release := beyondAReservation(t, k.local, "beyond")
	if node := k.starts(t, "beyond"); node == "epyc-2s-0" {
		t.Errorf("it has node %s, which is reserved", node)
	}
	k.asked(t, cpus)
	release()
}
