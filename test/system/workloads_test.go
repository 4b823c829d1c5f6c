package system

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const workloadSpace = "work"

// template is a pod with one container; scheduler names, classes and amounts are the caller's.
func template(app string, annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "app",
			Resources: corev1.ResourceRequirements{Requests: object.List("cpu", "100m")},
		}}},
	}
}

// What a user does with kubectl on any cluster works on simulated machines too.
func TestWorkloadsLiveTheirLives(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", "xeon-2s=2")
	ctx := t.Context()
	if _, err := l.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workloadSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := l.client.CoreV1().Pods(workloadSpace)
	waitFor(t, time.Minute, "the namespace's service account", func() error {
		_, err := l.client.CoreV1().ServiceAccounts(workloadSpace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	three := int32(3)

	t.Run("a Deployment gets its replicas, and new ones for deleted pods", func(t *testing.T) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
			Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: template("web", nil),
		}}
		if _, err := l.client.AppsV1().Deployments(workloadSpace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		ready := func() error {
			got, err := l.client.AppsV1().Deployments(workloadSpace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got.Status.ReadyReplicas != 3 || got.Status.Replicas != 3 {
				return fmt.Errorf("status %+v", got.Status)
			}
			return nil
		}
		waitFor(t, time.Minute, "three ready replicas", ready)
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(list.Items) != 3 {
			t.Fatalf("pods: %d, %v", len(list.Items), err)
		}
		gone := list.Items[0].Name
		testkit.Check(t, pods.Delete(ctx, gone, metav1.DeleteOptions{}))
		waitFor(t, time.Minute, "the deleted pod to be gone", func() error {
			_, err := pods.Get(ctx, gone, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("get: %w", err)
		})
		waitFor(t, time.Minute, "three ready replicas again", ready)
	})

	t.Run("a StatefulSet comes up in order", func(t *testing.T) {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
			Replicas: &three, ServiceName: "db",
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Template: template("db", nil),
		}}
		if _, err := l.client.AppsV1().StatefulSets(workloadSpace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "db-2 to be ready", func() error { return podReady(t, l, "db-2") })
		var last time.Time
		for i := range 3 {
			p, err := pods.Get(ctx, fmt.Sprintf("db-%d", i), metav1.GetOptions{})
			testkit.Check(t, err)
			if p.CreationTimestamp.Time.Before(last) {
				t.Errorf("%s is older than the one before it", p.Name)
			}
			last = p.CreationTimestamp.Time
		}
	})

	t.Run("a DaemonSet has a pod on every node", func(t *testing.T) {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "log"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "log"}},
			Template: template("log", nil),
		}}
		if _, err := l.client.AppsV1().DaemonSets(workloadSpace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "two ready pods", func() error {
			got, err := l.client.AppsV1().DaemonSets(workloadSpace).Get(ctx, "log", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got.Status.NumberReady != 2 || got.Status.DesiredNumberScheduled != 2 {
				return fmt.Errorf("status %+v", got.Status)
			}
			return nil
		})
	})

	t.Run("pods of a gang wait until all of them exist, and say so", func(t *testing.T) {
		create := func(name string) {
			gangTemplate := template(
				"gang",
				map[string]string{annotation.GangName: "g", annotation.GangMinAvailable: "3"},
			)
			pod := &corev1.Pod{ObjectMeta: gangTemplate.ObjectMeta, Spec: gangTemplate.Spec}
			pod.Name = name
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		members := func(holds func(*corev1.Pod) bool) func() error {
			return func() error {
				list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=gang"})
				if err != nil {
					return err
				}
				for i := range list.Items {
					if p := &list.Items[i]; !holds(p) {
						return fmt.Errorf("%s is %s on %q, %+v", p.Name, p.Status.Phase, p.Spec.NodeName,
							p.Status.Conditions)
					}
				}
				return nil
			}
		}
		create("gang-0")
		create("gang-1")
		waitFor(t, time.Minute, "two members that say why they wait", members(func(p *corev1.Pod) bool {
			return p.Spec.NodeName == "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && strings.HasPrefix(c.Message, "GangNotReady: ") &&
					strings.Contains(c.Message, "gang work/g has 2 of the 3 members")
			})
		}))
		create("gang-2")
		waitFor(t, time.Minute, "three members that run", members(func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning
		}))
	})

	t.Run("a Job completes", func(t *testing.T) {
		tmpl := template("once", nil)
		tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
		j := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "once"},
			Spec:       batchv1.JobSpec{Completions: &three, Parallelism: &three, Template: tmpl},
		}
		if _, err := l.client.BatchV1().Jobs(workloadSpace).Create(ctx, j, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "the job to succeed", func() error {
			got, err := l.client.BatchV1().Jobs(workloadSpace).Get(ctx, "once", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got.Status.Succeeded != 3 {
				return fmt.Errorf("status %+v", got.Status)
			}
			return nil
		})
	})

	t.Run("a container that fails is started again", func(t *testing.T) {
		tmpl := template("flaky", map[string]string{"tenon.sh/simulate": `{"runFor":"300ms","exitCode":1}`})
		p := &corev1.Pod{ObjectMeta: tmpl.ObjectMeta, Spec: tmpl.Spec}
		p.Name = "flaky"
		if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "a restart", func() error {
			got, err := pods.Get(ctx, "flaky", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(got.Status.ContainerStatuses) == 0 || got.Status.ContainerStatuses[0].RestartCount == 0 {
				return fmt.Errorf("status %+v", got.Status.ContainerStatuses)
			}
			return nil
		})
	})

	t.Run("logs answer in words", func(t *testing.T) {
		body, err := pods.GetLogs("db-0", &corev1.PodLogOptions{}).Stream(ctx)
		testkit.Check(t, err)
		defer body.Close()
		text, err := io.ReadAll(body)
		if err != nil || !strings.Contains(string(text), "simulated container") {
			t.Errorf("got %q, %v", text, err)
		}
	})

	t.Run("a webhook refuses what can never work and names field and rule", func(t *testing.T) {
		tmpl := template("bad", nil)
		p := &corev1.Pod{ObjectMeta: tmpl.ObjectMeta, Spec: tmpl.Spec}
		p.Name = "bad"
		p.Labels[annotation.QoSClass] = "LSR"
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "the requested CPUs of LSR Pod must be integer") {
			t.Errorf("got %v", err)
		}
		if _, err := pods.Get(ctx, "bad", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the refused pod is there: %v", err)
		}
	})

	t.Run("a deleted namespace takes everything along", func(t *testing.T) {
		testkit.Check(t, l.client.CoreV1().Namespaces().Delete(ctx, workloadSpace, metav1.DeleteOptions{}))
		waitFor(t, 2*time.Minute, "the namespace to be gone", func() error {
			_, err := l.client.CoreV1().Namespaces().Get(ctx, workloadSpace, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("get: %w", err)
		})
		forest, err := trees(l.dir)
		testkit.Check(t, err)
		for _, tr := range forest {
			waitFor(t, time.Minute, "the groups of "+tr.node+" to be gone", func() error {
				state, err := tr.read()
				if err == nil && len(state) > 0 {
					err = fmt.Errorf("%d groups are left", len(state))
				}
				return err
			})
		}
	})
}

func podReady(t *testing.T, l *local, name string) error {
	t.Helper()
	p, err := l.client.CoreV1().Pods(workloadSpace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready: %s", name, p.Status.Phase)
}
