package system

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// noMoreIsEvictedThanThePreemptorNeeds: on a full node, where each victim takes a while to end and another pod is
// created in its place at once.
func noMoreIsEvictedThanThePreemptorNeeds(t *testing.T, l *local) {
	t.Helper()
	nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatal(len(nodes.Items), err)
	}
	size := nodes.Items[0].Status.Allocatable.Cpu().Value()
	one := []corev1.Container{{Name: "main", Image: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)},
	}}}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}
	_, err = l.client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{})
	testkit.Check(t, err)
	labels := map[string]string{"app": "low"}
	_, err = l.client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "low"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(size)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				SchedulerName: "tenon-scheduler", Containers: one,
			}},
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	run := func(app string, want int64) func() error {
		return func() error {
			pods, err := l.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{
				LabelSelector: "app=" + app, FieldSelector: "status.phase=Running",
			})
			if err == nil && int64(len(pods.Items)) != want {
				err = fmt.Errorf("%d pods of %s run, want %d", len(pods.Items), app, want)
			}
			return err
		}
	}
	waitFor(t, time.Minute, "the node to be full", run("low", size))
	const members, rounds = 20, 3
	for round := range rounds {
		name := fmt.Sprint("gang-", round)
		for i := range members {
			p := object.Pod(fmt.Sprint(name, "-", i), object.Scheduler("tenon-scheduler"), object.Label("app", name),
				object.Gang(name, fmt.Sprint(members)), object.PriorityClass("urgent"))
			p.Spec.Containers = one
			l.submit(t, p)
		}
		waitFor(t, time.Minute, "the gang to run", run(name, members))
		waitFor(t, time.Minute, "the others to run", run("low", size-members))
		waitFor(t, 10*time.Second, "Events of as many victims as there are members", func() error {
			evicted, err := l.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{
				FieldSelector: "reason=Preempted",
			})
			if got, want := len(evicted.Items), members*(round+1); err == nil && got != want {
				err = fmt.Errorf("%d pods were evicted until gang %d, want %d", got, round, want)
			}
			return err
		})
		gang := metav1.ListOptions{LabelSelector: "app=" + name}
		err = l.client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, gang)
		testkit.Check(t, err)
		waitFor(t, time.Minute, "the node to be full again", run("low", size))
	}
}
