package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
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
	"github.com/tenon-project/tenon/internal/core/evict"
	step "github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// moveReplicas is the size of each workload that moves.
const moveReplicas = 4

// outside is a namespace of which the descheduler may move no pod.
const outside = "outside"

// canary is the configuration of the descheduler; dryRun is whether it may write nothing.
const canary = `apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
dryRun: %t
profiles:
- name: canary
  pluginConfig:
  - name: MigrationController
    args: {minPodAge: 0s, namespaces: {exclude: [outside]}}
`

// watcher checks each version of pods and jobs.
type watcher struct {
	mu       sync.Mutex
	ready    map[string]map[types.UID]bool // by app
	complete map[string]bool               // apps that have had all replicas
	// floor is how many ready replicas an app must have, and changing why no pod of it may be evicted now.
	floor    map[string]int
	changing map[string]string
	jobs     map[string]*migration.PodMigrationJob // by name
	wanted   map[types.UID]bool                    // pods that have a job
	evicted  map[string]int                        // by app
	left     map[string]map[string]bool            // nodes that pods of an app have left, or leave, by app
	dry      bool                                  // the descheduler may write nothing
	broken   []string
}

func (w *watcher) see(e watch.Event) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok || p.Labels["app"] == "" {
		return
	}
	app := p.Labels["app"]
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready[app] == nil {
		w.ready[app] = map[types.UID]bool{}
	}
	delete(w.ready[app], p.UID)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI" && !w.wanted[p.UID] {
			w.broken = append(w.broken, fmt.Sprintf("%s was evicted without a job", p.Name))
		}
	}
	if isReady(p) && p.DeletionTimestamp == nil && e.Type != watch.Deleted {
		w.ready[app][p.UID] = true
	}
	n := len(w.ready[app])
	if w.complete[app] = w.complete[app] || n == moveReplicas; w.complete[app] && n < w.floor[app] {
		w.broken = append(w.broken, fmt.Sprintf("%s has %d ready replicas, and its budget requires %d, when %s is %s",
			app, n, w.floor[app], p.Name, e.Type))
	}
}

// seeJob checks a version of a job, whose name begins with its app.
func (w *watcher) seeJob(j *migration.PodMigrationJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.jobs[j.Name]
	w.jobs[j.Name] = j
	app, _, _ := strings.Cut(j.Name, ".")
	start := startOf(j)
	if start.Node != "" && w.left[app] == nil {
		w.left[app] = map[string]bool{}
	}
	waits := j.Status.Phase == "" || j.Status.Phase == migration.PodMigrationJobPending // as jobs are created
	if w.dry && (!waits || j.Status.Reason != "" || len(j.Annotations) > 0 || len(j.Finalizers) > 0) {
		w.broken = append(w.broken, fmt.Sprintf("%s was written in a dry run: %+v", j.Name, j))
	}
	if j.Spec.PodRef.Namespace == outside && (start.Node != "" || j.Spec.ReservationOptions != nil) {
		w.broken = append(w.broken, fmt.Sprintf("%s has started outside of the canary: %+v", j.Name, j))
	}
	if evicts(j) && (was == nil || !evicts(was)) {
		if why := w.changing[app]; why != "" {
			w.broken = append(w.broken, fmt.Sprintf("%s: a pod was evicted during %s", j.Name, why))
		}
		if !has(j, step.ReservationScheduled) || j.Status.NodeName == "" ||
			j.Status.NodeName == start.Node {
			w.broken = append(w.broken, fmt.Sprintf("%s: evicted from node %s with room on node %q: %+v", j.Name,
				start.Node, j.Status.NodeName, j.Status.Conditions))
		}
		if w.left[app][start.Node] = true; w.left[app][j.Status.NodeName] {
			w.broken = append(w.broken, fmt.Sprintf("%s: a pod goes to node %s, which another one has left", j.Name,
				j.Status.NodeName))
		}
	}
	if gone := has(j, step.Eviction); gone && (was == nil || !has(was, step.Eviction)) {
		if w.evicted[app]++; w.evicted[app] > 2 {
			w.broken = append(w.broken, fmt.Sprintf("%s: %d pods of %d were evicted within minutes", app,
				w.evicted[app], moveReplicas))
		}
	}
	moving := 0
	for _, other := range w.jobs {
		if start.Node != "" && startOf(other).Node == start.Node && !other.Status.Phase.IsFinal() {
			moving++
		}
	}
	if moving > 2 {
		w.broken = append(w.broken, fmt.Sprintf("%d pods of node %s move at a time", moving, start.Node))
	}
}

func startOf(j *migration.PodMigrationJob) annotation.MigrationStart {
	start, _, _ := annotation.ParseMigrationStart(j.Annotations[annotation.MigrationStartKey])
	return start
}

// has reports whether a condition is True.
func has(j *migration.PodMigrationJob, condition string) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c migration.PodMigrationJobCondition) bool {
		return c.Type == condition && c.Status == metav1.ConditionTrue
	})
}

// evicts reports whether the pod of a job was asked to leave.
func evicts(j *migration.PodMigrationJob) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c migration.PodMigrationJobCondition) bool {
		return c.Type == step.Eviction && c.Reason != step.FailedEvict
	})
}

// set notes why no pod of an app may be evicted, "" where any may, and how many replicas must be ready.
func (w *watcher) set(app, changing string, floor int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changing[app], w.floor[app] = changing, floor
}

// moves are jobs of a cluster.
type moves struct {
	*local
	*watcher
	jobs dynamic.ResourceInterface
}

func (m moves) create(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	m.mu.Lock()
	m.wanted[pod.UID] = true
	m.mu.Unlock()
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

// second returns a pod of an app that is on another node than the pod of a job, and not the same.
func (m moves) second(t *testing.T, app, job string) *corev1.Pod {
	t.Helper()
	j, err := m.job(t.Context(), job)
	testkit.Check(t, err)
	all, err := m.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	testkit.Check(t, err)
	i := slices.IndexFunc(all.Items, func(p corev1.Pod) bool {
		return p.UID != j.Spec.PodRef.UID && p.DeletionTimestamp == nil
	})
	return &all.Items[i]
}

// pairEnds waits until a job has succeeded, and another one of its workload has too or waits for a later time. Each of
// their successors may use the room of either.
func (m moves) pairEnds(t *testing.T, jobs ...string) {
	t.Helper()
	succeeded := 0
	for _, name := range jobs {
		m.reaches(t, name, func(s *migration.PodMigrationJobStatus) bool {
			return s.Phase == migration.PodMigrationJobSucceeded || s.Reason == string(evict.OwnerBackoff)
		}, "to end")
		if j, err := m.job(t.Context(), name); err == nil && j.Status.Phase == migration.PodMigrationJobSucceeded {
			succeeded++
			m.checkSuccessor(t, name)
		}
	}
	if succeeded == 0 {
		t.Errorf("none of the jobs %v has succeeded", jobs)
	}
}

// addOutsider creates a pod outside of the canary, which may be evicted otherwise, with a job.
func (m moves) addOutsider(t *testing.T) {
	t.Helper()
	_, err := m.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: outside},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	p := pod(outside, object.Label("app", outside),
		object.Annotation("descheduler.alpha.kubernetes.io/evict", "true"))
	p.Namespace = outside
	waitFor(t, time.Minute, "the pod outside of the canary", func() error {
		p, err := m.client.CoreV1().Pods(outside).Create(t.Context(), p, metav1.CreateOptions{})
		if err == nil {
			m.create(t, outside+".0", p)
		}
		return err
	})
}

// workload creates a Deployment, or a StatefulSet where stateful, with a budget of some unavailable replicas.
func (m moves) workload(t *testing.T, app string, stateful bool, unavailable int) {
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
	m.set(app, "", moveReplicas-unavailable)
	most := intstr.FromInt(unavailable)
	_, err = m.client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &most, Selector: selector},
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

// watch follows all jobs until ctx ends.
func (m moves) watch(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := m.jobs.Watch(ctx, metav1.ListOptions{}) // from the objects that there are
		if err != nil {
			continue
		}
		for e := range stream.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			j := &migration.PodMigrationJob{}
			if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, j) == nil {
				m.seeJob(j)
			}
		}
	}
}

// patch changes a workload.
func (m moves) patch(t *testing.T, app string, stateful bool, patch string) {
	t.Helper()
	var err error
	if stateful {
		_, err = m.client.AppsV1().StatefulSets("default").Patch(t.Context(), app, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{})
	} else {
		_, err = m.client.AppsV1().Deployments("default").Patch(t.Context(), app, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{})
	}
	testkit.Check(t, err)
}

// settled waits until a workload has all replicas, of its newest revision.
func (m moves) settled(t *testing.T, app string, stateful bool, replicas int32) {
	t.Helper()
	waitFor(t, time.Minute, app+" to be rolled out", func() error {
		var seen, generation int64
		var all, updated, ready int32
		if stateful {
			s, err := m.client.AppsV1().StatefulSets("default").Get(t.Context(), app, metav1.GetOptions{})
			testkit.Check(t, err)
			seen, generation, all = s.Status.ObservedGeneration, s.Generation, s.Status.Replicas
			updated, ready = s.Status.UpdatedReplicas, s.Status.ReadyReplicas
		} else {
			d, err := m.client.AppsV1().Deployments("default").Get(t.Context(), app, metav1.GetOptions{})
			testkit.Check(t, err)
			seen, generation, all = d.Status.ObservedGeneration, d.Generation, d.Status.Replicas
			updated, ready = d.Status.UpdatedReplicas, d.Status.ReadyReplicas
		}
		if seen != generation || all != replicas || updated != replicas || ready != replicas {
			return fmt.Errorf("%d replicas, %d updated, %d ready", all, updated, ready)
		}
		return nil
	})
}

// reaches waits until a job has a phase, and a reason if one is given.
func (m moves) reaches(t *testing.T, name string, want func(s *migration.PodMigrationJobStatus) bool, what string) {
	t.Helper()
	// An eviction that is cut off in the middle holds a disruption of the budget for two minutes, as in any cluster.
	waitFor(t, 3*time.Minute, "job "+name+" "+what, func() error {
		j, err := m.job(t.Context(), name)
		if err == nil && !want(&j.Status) {
			err = fmt.Errorf("it is %s: %s %s; conditions: %+v", j.Status.Phase, j.Status.Reason, j.Status.Message,
				j.Status.Conditions)
		}
		return err
	})
}

// roll rolls a workload out while a job asks for one of its old pods: the rollout replaces the pod, and no eviction.
func (m moves) roll(t *testing.T, name, app string, stateful bool) {
	t.Helper()
	old := m.first(t, app)
	m.set(app, "a rollout", moveReplicas-1)
	m.patch(t, app, stateful, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"roll":%q}}}}}`, name))
	m.create(t, name, old)
	m.settled(t, app, stateful, moveReplicas)
	m.reaches(t, name, func(s *migration.PodMigrationJobStatus) bool {
		return s.Phase == migration.PodMigrationJobFailed && s.Reason == step.MissingPod
	}, "to fail: the rollout has replaced its pod")
	m.set(app, "", moveReplicas-1)
}

// scale changes the number of replicas, as an autoscaler does.
func (m moves) scale(t *testing.T, app string, stateful bool, replicas int32) {
	t.Helper()
	m.set(app, "", moveReplicas-2)
	m.patch(t, app, stateful, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	m.settled(t, app, stateful, replicas)
	if replicas == moveReplicas {
		m.set(app, "", moveReplicas-1)
	}
}

// autoscale lets a HorizontalPodAutoscaler want fewer replicas while a job waits, and then as many as there are.
func (m moves) autoscale(t *testing.T, name, app string, stateful bool) {
	t.Helper()
	kind := map[bool]string{true: "StatefulSet", false: "Deployment"}[stateful]
	scalers := m.client.AutoscalingV2().HorizontalPodAutoscalers("default")
	hpa, err := scalers.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: moveReplicas, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: kind, Name: app,
			},
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	wants := func(n int32) {
		hpa.Status.CurrentReplicas, hpa.Status.DesiredReplicas = moveReplicas, n
		hpa, err = scalers.UpdateStatus(t.Context(), hpa, metav1.UpdateOptions{})
		testkit.Check(t, err)
	}
	m.set(app, "a scale-down", moveReplicas-1)
	wants(moveReplicas - 1)
	m.create(t, name, m.first(t, app))
	m.reaches(t, name, func(s *migration.PodMigrationJobStatus) bool { return s.Reason == "ScalingDown" },
		"to wait for the scale-down")
	m.set(app, "", moveReplicas-1)
	wants(moveReplicas)
}

// TestPodsMoveSafelyWhileProcessesDie moves pods of many workloads, and kills descheduler, scheduler or manager in the
// middle of each move, with rollouts and changes of the number of replicas in between. At each version that a watcher
// sees: no workload has fewer ready pods than its budget requires, a pod is evicted only for its job, when its room is
// held on another node, at most twice for a workload and two at a time for a node, and never while its workload rolls
// out or scales down. No pod goes to a node that another one of its workload has left. Nothing is written in a dry run,
// and nothing of a namespace outside of the canary. Each successor runs in the room that was held for it.
func TestPodsMoveSafelyWhileProcessesDie(t *testing.T) {
	t.Parallel()
	apps := size(6, 16)
	limits := filepath.Join(t.TempDir(), "descheduler.yaml")
	testkit.Check(t, os.WriteFile(limits, fmt.Appendf(nil, canary, true), 0o600))
	l := up(t, 1, "--machine", "arm64-1s", "--nodes", fmt.Sprint(size(6, 30)), "--descheduler-config", limits)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	m := moves{l, &watcher{
		ready: map[string]map[types.UID]bool{}, complete: map[string]bool{}, floor: map[string]int{},
		changing: map[string]string{}, jobs: map[string]*migration.PodMigrationJob{}, wanted: map[types.UID]bool{},
		evicted: map[string]int{}, left: map[string]map[string]bool{}, dry: true,
	}, objects.Resource(migration.Resource())}
	stateful := func(i int) bool { return i%4 == 3 }
	// Of every fourth workload, two pods move at a time.
	pair := func(i int) bool { return i%4 == 0 }
	for i := range apps {
		m.workload(t, fmt.Sprint("app-", i), stateful(i), map[bool]int{true: 2, false: 1}[pair(i)])
	}
	m.workload(t, "rolling", false, 1)
	stays := m.first(t, "rolling")
	m.patch(t, "rolling", false,
		`{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"main","image":"next"}]}}}}`)
	m.set("rolling", "a rollout that is paused", moveReplicas-1)
	for i := range apps {
		m.first(t, fmt.Sprint("app-", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { m.watch(ctx) })
	following.Go(func() {
		// Ready pods count first: one may be the successor of a pod that went while nothing was watched.
		l.followWith(ctx, m.see, func(all, gone []*corev1.Pod) {
			for _, pod := range all {
				m.see(watch.Event{Type: watch.Modified, Object: pod})
			}
			for _, pod := range gone {
				m.see(watch.Event{Type: watch.Deleted, Object: pod})
			}
		})
	})
	defer following.Wait()
	defer stop()

	m.create(t, "rolling.0", stays)
	m.create(t, "app-0.0", m.first(t, "app-0"))
	m.addOutsider(t)
	waitFor(t, time.Minute, "the dry run to say what it would do", func() error {
		text, err := os.ReadFile(filepath.Join(l.dir, "log", "descheduler.log"))
		if err == nil && !strings.Contains(string(text), `"Job would start" podMigrationJob="app-0.0"`) {
			err = fmt.Errorf("the log is %s", text)
		}
		return err
	})
	if out, err := m.tenon("kubectl", "get", "reservations", "-o", "name"); err != nil || out != "" {
		t.Errorf("a dry run has created Reservations: %v %s", err, out)
	}
	m.mu.Lock()
	m.dry = false
	m.mu.Unlock()
	useConfig(t, l, limits, fmt.Sprintf(canary, false))

	verbs := []string{"__descheduler", schedulerVerb, managerVerb}
	for i := range apps {
		other := (i + 5) % apps
		app, elsewhere := fmt.Sprint("app-", i), fmt.Sprint("app-", other)
		name := fmt.Sprint(app, ".", i)
		switch i % 4 {
		case 1:
			m.roll(t, name+"-roll", app, stateful(i))
		case 2:
			m.scale(t, elsewhere, stateful(other), moveReplicas-1)
		case 3:
			m.autoscale(t, name, app, stateful(i))
		}
		if i%4 != 3 && i != 0 {
			m.create(t, name, m.first(t, app))
		}
		if pair(i) {
			m.create(t, name+"-second", m.second(t, app, name))
		}
		m.reaches(t, name, func(s *migration.PodMigrationJobStatus) bool {
			return s.Phase != "" && s.Phase != migration.PodMigrationJobPending
		}, "to begin")
		m.kill(t, verbs[i%len(verbs)])
		if i < kills()-apps {
			m.kill(t, verbs[(i+1)%len(verbs)])
		}
		if pair(i) {
			m.pairEnds(t, name, name+"-second")
		} else {
			m.reaches(t, name, func(s *migration.PodMigrationJobStatus) bool {
				return s.Phase == migration.PodMigrationJobSucceeded
			}, "to succeed")
			m.checkSuccessor(t, name)
		}
		if i%4 == 2 {
			m.scale(t, elsewhere, stateful(other), moveReplicas)
		}
	}
	j, err := m.job(t.Context(), "rolling.0")
	testkit.Check(t, err)
	p, err := m.client.CoreV1().Pods("default").Get(t.Context(), stays.Name, metav1.GetOptions{})
	if err != nil || p.UID != stays.UID || p.DeletionTimestamp != nil || j.Status.Reason != "RolloutInProgress" {
		t.Errorf("a pod of a workload that rolls out: %v, %v; its job says %+v", p.UID, err, j.Status)
	}
	if j, err = m.job(t.Context(), "outside.0"); err != nil || j.Status.Phase == migration.PodMigrationJobSucceeded ||
		!strings.Contains(j.Status.Message, string(evict.NamespaceNotInCanary)) {
		t.Errorf("a pod outside of the canary: %v; its job says %+v", err, j.Status)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range m.broken {
		t.Error(text)
	}
	if len(m.watcher.jobs) < apps+1 {
		t.Errorf("the watcher has seen %d jobs", len(m.watcher.jobs))
	}
}

// checkSuccessor checks that the new pod of a job that has succeeded runs in a room that was held for it,
// or for another pod of its workload.
func (m moves) checkSuccessor(t *testing.T, name string) {
	t.Helper()
	j, err := m.job(t.Context(), name)
	testkit.Check(t, err)
	p, err := m.client.CoreV1().Pods("default").Get(t.Context(), j.Status.PodRef.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	used, _, err := annotation.ParseReservationAllocated(p.Annotations[annotation.ReservationAllocatedKey])
	if err != nil || !strings.HasPrefix(used.Name, "migration-") || p.UID != j.Status.PodRef.UID ||
		p.Spec.NodeName != j.Status.NodeName || p.Spec.NodeName == startOf(j).Node {
		t.Errorf("%s: the pod was on %s; its successor %s is on %s in Reservation %q (%v), and the job says %+v", name,
			startOf(j).Node, p.Name, p.Spec.NodeName, used.Name, err, j.Status)
	}
}
