package system

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// aGangHoldsTheNodeUntilItsStart: a pod that declares ten minutes fills half of the node, and a gang of more than the
// other half waits for it. Commands show the hold and its start. A pod of a Job whose deadline is before that start
// runs meanwhile, and of pods that declare nothing only one that leaves the gang enough. The gang starts when the pod
// has ended.
func aGangHoldsTheNodeUntilItsStart(t *testing.T, l *local) {
	t.Helper()
	nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	all := nodes.Items[0].Status.Allocatable.Cpu().MilliValue()
	part := func(percent int64) object.PodOption {
		return object.Requests("cpu", fmt.Sprint(all*percent/100, "m"))
	}
	node := func(name string) string {
		p, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return p.Spec.NodeName
	}
	shows := func(text string, args ...string) {
		t.Helper()
		waitFor(t, time.Minute, "tenon "+strings.Join(args, " ")+" to show "+text, func() error {
			out, err := l.tenon(args...)
			if err == nil && !strings.Contains(out, text) {
				err = fmt.Errorf("it shows\n%s", out)
			}
			return err
		})
	}
	begin := time.Now()
	l.submit(t, pod("old", part(50), object.Annotation(annotation.ExpectedRuntime, "10m")))
	waitFor(t, time.Minute, "the first pod to start", func() error {
		if node("old") == "" {
			return errors.New("it has no node")
		}
		return nil
	})
	for i := range 2 {
		l.submit(t, pod(fmt.Sprint("large-", i), part(40), object.Gang("large", "2")))
	}
	shows("hold: gang/default/large, since ", "queue")
	shows("until it starts, at the latest at ", "reservation")
	shows(", after pod/default/old", "queue", "gang/large")

	l.submit(t, pod("behind", part(25)))
	l.submit(t, pod("beside", part(5)))
	waitFor(t, time.Minute, "the pod that leaves the gang enough to start", func() error {
		if node("beside") == "" {
			return errors.New("it has no node")
		}
		return nil
	})
	l.apply(t, fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: quick}, spec: {
  activeDeadlineSeconds: 120, template: {spec: {schedulerName: tenon-scheduler, restartPolicy: Never, containers: [
  {name: c, image: i, resources: {requests: {cpu: %dm}}}]}}}}
`, all/20))
	waitFor(t, time.Minute, "the pod of the Job to run beside the hold", func() error {
		pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
			LabelSelector: "job-name=quick",
		})
		if err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("%d pods, %w", len(pods.Items), err)
		}
		p := &pods.Items[0]
		if declared := p.Annotations[annotation.ExpectedRuntime]; declared != "2m0s" || p.Spec.NodeName == "" {
			return fmt.Errorf("it declares %q and is on %q: %+v", declared, p.Spec.NodeName, p.Status.Conditions)
		}
		return nil
	})
	shows("held back: pod/default/behind: node "+nodes.Items[0].Name+" is held for gang/default/large until about ",
		"queue")
	if node("behind") != "" || node("large-0") != "" {
		t.Errorf("the pod behind the gang is on %q, a member on %q", node("behind"), node("large-0"))
	}

	testkit.Check(t, l.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), "old",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	waitFor(t, time.Minute, "the gang to start", func() error {
		for _, name := range []string{"large-0", "large-1"} {
			if node(name) == "" {
				return fmt.Errorf("%s has no node", name)
			}
		}
		return nil
	})
	if took := time.Since(begin); took > 10*time.Minute {
		t.Errorf("the gang started %v after the first pod, which is later than promised", took)
	}
	waitFor(t, time.Minute, "an Event about the hold", func() error {
		events, err := l.client.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
			FieldSelector: "reason=NodesHeld",
		})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	propagation := metav1.DeletePropagationBackground
	testkit.Check(t, l.client.BatchV1().Jobs(metav1.NamespaceDefault).Delete(t.Context(), "quick",
		metav1.DeleteOptions{PropagationPolicy: &propagation}))
}
