package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// moveReplicas is the size of each workload that moves.
const moveReplicas = 4

// replicas watches workloads: which of their pods were ever there, and that at most one of a workload is unavailable.
type replicas struct {
	mu       sync.Mutex
	ready    map[string]map[types.UID]bool // by app
	seen     map[string]map[types.UID]bool
	complete map[string]bool // apps that have had all replicas
	broken   []string
}

func (r *replicas) see(e watch.Event) {
	p, ok := e.Object.(*corev1.Pod)
	app := ""
	if ok {
		app = p.Labels["app"]
	}
	if app == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[app] == nil {
		r.seen[app], r.ready[app] = map[types.UID]bool{}, map[types.UID]bool{}
	}
	r.seen[app][p.UID] = true
	delete(r.ready[app], p.UID)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil &&
			e.Type != watch.Deleted {
			r.ready[app][p.UID] = true
		}
	}
	n := len(r.ready[app])
	if r.complete[app] = r.complete[app] || n == moveReplicas; r.complete[app] && n < moveReplicas-1 {
		r.broken = append(r.broken, fmt.Sprintf("%s has %d ready replicas of %d when %s is %s", app, n, moveReplicas,
			p.Name, e.Type))
	}
}

// moves are jobs of a cluster.
type moves struct {
	*local
	jobs dynamic.ResourceInterface
}

func (m moves) create(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	_, err := m.jobs.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": migration.GroupVersion().String(), "kind": migration.Kind,
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"podRef": map[string]any{
			"namespace": pod.Namespace, "name": pod.Name, "uid": string(pod.UID),
		}},
	}}, metav1.CreateOptions{})
	testkit.Check(t, err)
}

func (m moves) job(ctx context.Context, name string) (*migration.PodMigrationJob, error) {
	o, err := m.jobs.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	j := &migration.PodMigrationJob{}
	return j, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, j)
}

// first returns a pod of an app when all its replicas are ready.
func (m moves) first(t *testing.T, app string) (found *corev1.Pod) {
	t.Helper()
	waitFor(t, time.Minute, "the replicas of "+app, func() error {
		all, err := m.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		for i := range all.Items {
			if all.Items[i].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s", all.Items[i].Name, all.Items[i].Status.Phase)
			}
		}
		if len(all.Items) != moveReplicas {
			return fmt.Errorf("%d pods", len(all.Items))
		}
		found = &all.Items[0]
		return nil
	})
	return found
}

// workload creates a Deployment, or a StatefulSet where stateful, with a budget of one unavailable replica.
func (m moves) workload(t *testing.T, app string, stateful bool) {
	t.Helper()
	labels := map[string]string{"app": app}
	meta, selector := metav1.ObjectMeta{Name: app}, &metav1.LabelSelector{MatchLabels: labels}
	p := pod(app)
	p.Labels[annotation.QoSClass] = "LS"
	p.Labels["app"] = app
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
	var err error
	if stateful {
		_, err = m.client.AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
			ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				Replicas: new(int32(moveReplicas)), Selector: selector, Template: template, ServiceName: app,
				PodManagementPolicy: appsv1.ParallelPodManagement,
			},
		}, metav1.CreateOptions{})
	} else {
		_, err = m.client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(moveReplicas)), Selector: selector, Template: template,
			},
		}, metav1.CreateOptions{})
	}
	testkit.Check(t, err)
	one := intstr.FromInt32(1)
	_, err = m.client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: selector},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
}

// kill ends the process of a hidden verb; it is started again.
func (m moves) kill(t *testing.T, verb string) {
	t.Helper()
	pids, err := m.processes(verb)
	testkit.Check(t, err)
	if pids[0] == 0 || syscall.Kill(pids[0], syscall.SIGKILL) != nil {
		t.Fatalf("no process %s to kill", verb)
	}
}

// TestPodsMoveSafelyWhileProcessesDie moves a pod of each workload, and kills descheduler, scheduler or manager in the
// middle. No workload loses more than its budget, no pod is evicted but those that have a job, each successor runs in
// the room that was reserved for it on another node, and a pod whose workload rolls out stays.
func TestPodsMoveSafelyWhileProcessesDie(t *testing.T) {
	l := up(t, 1, "--machine", "arm64-1s", "--nodes", "6")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	m := moves{l, objects.Resource(migration.Resource())}
	for i := range kills() {
		m.workload(t, fmt.Sprint("app-", i), i%3 == 2)
	}
	m.workload(t, "rolling", false)
	stays := m.first(t, "rolling")
	_, err = m.client.AppsV1().Deployments("default").Patch(t.Context(), "rolling", types.StrategicMergePatchType,
		[]byte(`{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"main","image":"next"}]}}}}`),
		metav1.PatchOptions{})
	testkit.Check(t, err)
	m.create(t, "rolling", stays)

	sources := map[string]*corev1.Pod{}
	for i := range kills() {
		app := fmt.Sprint("app-", i)
		sources[app] = m.first(t, app)
	}
	r := &replicas{
		ready: map[string]map[types.UID]bool{}, seen: map[string]map[types.UID]bool{}, complete: map[string]bool{},
	}
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		l.follow(ctx, func(all []corev1.Pod) {
			for i := range all {
				r.see(watch.Event{Type: watch.Modified, Object: &all[i]})
			}
		}, r.see)
	})
	defer following.Wait()
	defer stop()

	verbs := []string{"__descheduler", schedulerVerb, managerVerb}
	for i := range kills() {
		app := fmt.Sprint("app-", i)
		m.create(t, app, sources[app])
		waitFor(t, time.Minute, "job "+app+" to begin", func() error {
			j, err := m.job(t.Context(), app)
			if err == nil && (j.Status.Phase == "" || j.Status.Phase == migration.PodMigrationJobPending) {
				err = errors.New("it is pending: " + j.Status.Message)
			}
			return err
		})
		m.kill(t, verbs[i%len(verbs)])
		waitFor(t, time.Minute, "job "+app+" to succeed", func() error {
			j, err := m.job(t.Context(), app)
			if err == nil && j.Status.Phase != migration.PodMigrationJobSucceeded {
				err = fmt.Errorf("it is %s: %s %s", j.Status.Phase, j.Status.Reason, j.Status.Message)
			}
			return err
		})
	}
	for app, source := range sources {
		j, err := m.job(t.Context(), app)
		testkit.Check(t, err)
		p, err := m.client.CoreV1().Pods("default").Get(t.Context(), j.Status.PodRef.Name, metav1.GetOptions{})
		testkit.Check(t, err)
		used, _, err := annotation.ParseReservationAllocated(p.Annotations[annotation.ReservationAllocatedKey])
		if err != nil || used.Name != j.Spec.ReservationOptions.ReservationRef.Name || p.UID != j.Status.PodRef.UID ||
			p.Spec.NodeName != j.Status.NodeName || p.Spec.NodeName == source.Spec.NodeName {
			t.Errorf("%s: %s was on %s; its successor %s is on %s in Reservation %q (%v), and the job says %+v", app,
				source.Name, source.Spec.NodeName, p.Name, p.Spec.NodeName, used.Name, err, j.Status)
		}
	}
	j, err := m.job(t.Context(), "rolling")
	testkit.Check(t, err)
	p, err := m.client.CoreV1().Pods("default").Get(t.Context(), stays.Name, metav1.GetOptions{})
	if err != nil || p.UID != stays.UID || p.DeletionTimestamp != nil || j.Status.Reason != "RolloutInProgress" {
		t.Errorf("a pod of a workload that rolls out: %v, %v; its job says %+v", p.UID, err, j.Status)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.broken {
		t.Error(text)
	}
	for app := range sources {
		if n := len(r.seen[app]); n != moveReplicas+1 {
			t.Errorf("%s has had %d pods, want one more than its %d replicas", app, n, moveReplicas)
		}
	}
}
