package migration_test

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/desched/migration"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// cluster is an API server with a scheduler, the controllers of workloads and kubelets that are simple.
type cluster struct {
	t      *testing.T
	begin  time.Time
	client client.WithWatch
	pods   *fake.Clientset
	now    time.Time
	events *events.FakeRecorder
	jobs   cache.Store
	unread string // why no job can be read
	places cache.Store
	asked  cache.Store // EvictionRequests
	plan   plan
	bond   gang.Bond

	evictions []string // names of pods
	writes    int      // of the controller
	kill      int      // the write after which the controller is killed; 0: never
	before    bool     // The write has no effect.
	killed    bool
	problems  []string
}

type args = descheduler.MigrationControllerArgs

// plan is what the other programs do.
type plan struct {
	// target is where Reservations are placed; "" nowhere.
	target string
	// owner is ReplicaSet, StatefulSet, or "" for a bare pod.
	owner string
	// Passes after which something happens; 0 is at once, negative is never.
	scheduled, gone, bound, ready int
	tooMany                       int // answers 429 to so many evictions
	answered, givenUp             int // of EvictionRequests
	stop                          int // a user stops the job; 0 is never
	evictError, requestError      error
	noAnswer                      int // evictions that the API server is gone for
	createError                   error
	refuse                        bool // The pod is of a priority that may not be evicted.
	replicas                      int
	args                          func(*args)
	policy                        string // evictionPolicy, "" for the default
	dry                           bool
	failed                        bool          // The pod has failed.
	unready                       bool          // Another pod of the workload is not Ready.
	refusedBefore                 time.Duration // so long, a rollout of the workload runs
}

const (
	source = "n0"
	target = "n1"
)

var errKilled = errors.New("the process was killed")

func newCluster(t *testing.T, p plan) *cluster {
	t.Helper()
	c := &cluster{
		t: t, now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), events: events.NewFakeRecorder(1000),
		begin:  time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC),
		jobs:   cache.NewStore(cache.MetaNamespaceKeyFunc),
		places: cache.NewStore(cache.MetaNamespaceKeyFunc), pods: fake.NewClientset(), plan: p,
		asked: cache.NewStore(cache.MetaNamespaceKeyFunc),
	}
	scheme, err := migration.NewScheme()
	testkit.Check(t, err)
	c.client = interceptor.NewClient(clientfake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.PodMigrationJob{}, &reservation.Reservation{}).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*reservation.Reservation); ok && p.createError != nil {
				return p.createError
			}
			if _, ok := o.(*unstructured.Unstructured); ok && p.requestError != nil {
				return p.requestError
			}
			if o.GetUID() == "" {
				o.SetUID(types.UID("uid-of-" + o.GetName()))
			}
			o.SetCreationTimestamp(metav1.NewTime(c.now))
			return c.write(func() error { return w.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.write(func() error { return w.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.write(func() error { return w.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, name string, o client.Object,
			opts ...client.SubResourceUpdateOption,
		) error {
			return c.write(func() error { return w.SubResource(name).Update(ctx, o, opts...) })
		},
	})
	c.pods.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		return true, nil, c.write(func() error {
			return c.evict(e.Namespace, e.Name, e.DeleteOptions.Preconditions.UID)
		})
	})
	c.pods.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		return true, nil, c.write(func() error {
			return c.evict(d.GetNamespace(), d.GetName(), d.DeleteOptions.Preconditions.UID)
		})
	})
	return c
}

// write counts a write of the controller, and kills the controller after it or before it.
func (c *cluster) write(f func() error) error {
	if c.killed {
		return errKilled
	}
	c.writes++
	if c.writes == c.kill && c.before {
		c.killed = true
		return errKilled
	}
	err := f()
	if c.writes == c.kill {
		c.killed = true
		return errKilled
	}
	return err
}

// other lets another program act, whose writes are not counted.
func (c *cluster) other(f func() error) {
	c.t.Helper()
	killed, kill := c.killed, c.kill
	c.killed, c.kill = false, 0
	defer func() { c.killed, c.kill = killed, kill }()
	writes := c.writes
	testkit.Check(c.t, f())
	c.writes = writes
}

// evict is the Eviction API. It checks D4.
func (c *cluster) evict(namespace, name string, uid *types.UID) error {
	found, err := c.pods.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name)
	if err != nil {
		return err
	}
	p := found.(*corev1.Pod).DeepCopy()
	if uid == nil || p.UID != *uid {
		return apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("the UID differs"))
	}
	if c.plan.evictError != nil {
		return c.plan.evictError
	}
	if c.plan.noAnswer > 0 {
		c.plan.noAnswer--
		return errors.New("dial tcp: connection refused")
	}
	if c.plan.tooMany > 0 {
		c.plan.tooMany--
		return apierrors.NewTooManyRequests("a PodDisruptionBudget needs 3 pods", 1)
	}
	for _, j := range c.list() {
		if j.Spec.PodRef.Name != name || j.Spec.Mode == v1alpha1.EvictDirectly {
			continue
		}
		r := c.place(j)
		if r == nil || r.Status.NodeName == "" || r.Status.NodeName == p.Spec.NodeName ||
			r.Status.Phase != reservation.ReservationAvailable {
			c.problems = append(c.problems, fmt.Sprintf("%s is evicted without a place: %+v", name, r))
		}
		if convert.MigrationJob(j).Status.EvictedAt().IsZero() {
			c.problems = append(c.problems, name+" is evicted without a record of the time")
		}
	}
	c.evictions = append(c.evictions, name)
	return c.terminate(p)
}

func (c *cluster) terminate(p *corev1.Pod) error {
	if p.DeletionTimestamp != nil {
		return nil
	}
	at := metav1.NewTime(c.now)
	p.DeletionTimestamp = &at
	return c.pods.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, p.Namespace)
}

func (c *cluster) list() (all []*v1alpha1.PodMigrationJob) {
	list := &v1alpha1.PodMigrationJobList{}
	testkit.Check(c.t, c.client.List(c.t.Context(), list))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

func (c *cluster) place(j *v1alpha1.PodMigrationJob) *reservation.Reservation {
	o := j.Spec.ReservationOptions
	if o == nil || o.ReservationRef == nil {
		return nil
	}
	r := &reservation.Reservation{}
	if c.client.Get(c.t.Context(), types.NamespacedName{Name: o.ReservationRef.Name}, r) != nil {
		return nil
	}
	return r
}

func (c *cluster) pod(name string) *corev1.Pod {
	p, err := c.pods.CoreV1().Pods("a").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

// addPod creates a pod of the plan's workload on a node.
func (c *cluster) addPod(name, uid, node string, options ...object.PodOption) *corev1.Pod {
	c.t.Helper()
	p := object.Pod(name, append([]object.PodOption{
		object.UID(uid), object.On(node), object.Scheduler("tenon-scheduler"), object.Requests("cpu", "2"),
		object.Created(c.now.Add(-time.Hour)),
	}, options...)...)
	p.Namespace = "a"
	if c.plan.owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: c.plan.owner, Name: "w", UID: "w",
			Controller: new(true),
		}}
	}
	if node != "" {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if c.plan.failed {
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed}
	}
	c.other(func() error {
		_, err := c.pods.CoreV1().Pods("a").Create(c.t.Context(), p, metav1.CreateOptions{})
		return err
	})
	return p
}

// addJob creates a job for a pod.
func (c *cluster) addJob(name, pod string, changes ...func(*v1alpha1.PodMigrationJob)) {
	c.t.Helper()
	j := &v1alpha1.PodMigrationJob{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	j.Spec.PodRef = &corev1.ObjectReference{Namespace: "a", Name: pod}
	j.Status.Phase = v1alpha1.PodMigrationJobPending
	if p := c.pod(pod); p != nil {
		j.Spec.PodRef.UID = p.UID
	}
	for _, change := range changes {
		change(j)
	}
	status := j.Status
	c.other(func() error { return c.client.Create(c.t.Context(), j) })
	j.Status = status
	c.other(func() error { return c.client.Status().Update(c.t.Context(), j) })
}

func (c *cluster) job(name string) *v1alpha1.PodMigrationJob {
	j := &v1alpha1.PodMigrationJob{}
	if err := c.client.Get(c.t.Context(), types.NamespacedName{Name: name}, j); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		c.t.Fatal(err)
	}
	return j
}

// Read is an evict.State that has everything.
func (c *cluster) Read(f func(*evict.State)) {
	s := evict.NewState()
	s.SetNamespace("a", nil)
	for _, node := range []string{source, target} {
		s.SetNode(node, nil)
	}
	list, err := c.pods.CoreV1().Pods("a").List(c.t.Context(), metav1.ListOptions{})
	testkit.Check(c.t, err)
	workload := ""
	if c.plan.owner != "" {
		n := stdcmp.Or(c.plan.replicas, 5)
		w := evict.Workload{
			Key: evict.Key("a", c.plan.owner, "w"), Kind: evict.ReplicaSet, Replicas: n, StatusReplicas: n, Updated: n,
			Ready: n,
		}
		if workload = w.Key; c.now.After(c.begin) && c.now.Before(c.begin.Add(c.plan.refusedBefore)) {
			w.Generation = 1 // what was observed is older
		}
		s.SetWorkload(w)
		for i := range n - 1 {
			s.SetPod(evict.Pod{
				UID: fmt.Sprint("peer", i), Namespace: "a", Name: fmt.Sprint("peer", i), Node: "n9", Workload: workload,
				Ready: i > 0 || !c.plan.unready, Created: c.now.Add(-time.Hour),
			})
		}
	}
	for _, p := range list.Items {
		e := evict.Pod{
			UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Workload: workload,
			Ready: p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil, Created: p.CreationTimestamp.Time,
			Terminating: p.DeletionTimestamp != nil, Failed: p.Status.Phase == corev1.PodFailed,
		}
		if c.plan.refuse {
			e.Priority = 2_000_000_000
		}
		if name := p.Labels[annotation.PodGroup]; name != "" {
			e.Gang = "a/" + name
			s.SetGang(e.Gang, c.bond)
		}
		s.SetPod(e)
	}
	for _, j := range c.list() {
		e := convert.MigrationJob(j)
		for i := range list.Items {
			if e.PodUID == "" && list.Items[i].Name == e.PodName {
				e.PodUID = string(list.Items[i].UID)
			}
		}
		if p, ok := s.Pod(e.PodUID); ok {
			e.Workload, e.Gang = p.Workload, p.Gang
		}
		s.SetJob(*e)
	}
	f(s)
}

func (c *cluster) Now() time.Time { return c.now }

func (c *cluster) Since(at time.Time) time.Duration { return c.now.Sub(at) }

func (c *cluster) PutJob(*v1alpha1.PodMigrationJob) {}

func (c *cluster) PodsOf(namespace string) (all []*corev1.Pod) {
	list, err := c.pods.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
	testkit.Check(c.t, err)
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

func (c *cluster) Pod(namespace string, uid types.UID) *corev1.Pod {
	all := c.PodsOf(namespace)
	if i := slices.IndexFunc(all, func(p *corev1.Pod) bool { return p.UID == uid }); i >= 0 {
		return all[i]
	}
	return nil
}

// start starts a controller, as a process that has synced its caches.
func (c *cluster) start() *migration.Controller {
	policy := &evict.Policy{
		EvictAllBarePods: true, EvictInterval: time.Millisecond, MaxMigratingPerNode: 2, MinPodAge: 5 * time.Minute,
		ReturnWindow: 30 * time.Minute, WorkloadWindow: &evict.Window{Duration: 5 * time.Minute},
		OwnerBackoff: 5 * time.Minute,
	}
	settings, err := descheduler.Read("", nil)
	testkit.Check(c.t, err)
	if c.plan.args != nil {
		c.plan.args(&settings.Migration)
	}
	c.killed = false
	return migration.New(migration.Options{
		Args: settings.Migration, DryRun: c.plan.dry, Client: c.client, Pods: c.pods, Jobs: c.jobs,
		Reservations: c.places, Requests: c.asked,
		Cluster: c, Policy: policy, Events: c.events, Metrics: migration.NewMetrics(),
		Clock: c,
	})
}

// sync fills the caches.
func (c *cluster) sync() {
	var jobs, places []any
	for _, j := range c.list() {
		j.Unread = c.unread
		jobs = append(jobs, j)
	}
	list := &reservation.ReservationList{}
	testkit.Check(c.t, c.client.List(c.t.Context(), list))
	for i := range list.Items {
		places = append(places, &list.Items[i])
	}
	var asked []any
	for _, r := range c.requests() {
		asked = append(asked, r)
	}
	testkit.Check(c.t, errors.Join(c.jobs.Replace(jobs, ""), c.places.Replace(places, ""), c.asked.Replace(asked, "")))
}

// requests returns the EvictionRequests.
func (c *cluster) requests() (all []*unstructured.Unstructured) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("lifecycle.k8s.io/v1alpha1")
	list.SetKind("EvictionRequestList")
	testkit.Check(c.t, c.client.List(c.t.Context(), list))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// answer lets programs evict the pod of an EvictionRequest, or give it up.
func (c *cluster) answer(r *unstructured.Unstructured, after func(time.Time, int) bool) error {
	name, _, _ := unstructured.NestedString(r.Object, "spec", "target", "pod", "name")
	uid, _, _ := unstructured.NestedString(r.Object, "spec", "target", "pod", "uid")
	requester, _, _ := unstructured.NestedString(r.Object, "spec", "requester")
	intent, _, _ := unstructured.NestedString(r.Object, "spec", "intent")
	p := c.pod(name)
	if requester != annotation.EvictionRequester || intent != "Eviction" || p != nil && p.UID == types.UID(uid) &&
		p.Labels[annotation.PodGroup] != "" {
		c.problems = append(c.problems, fmt.Sprintf("requested: %v", r.Object["spec"]))
	}
	created := r.GetCreationTimestamp().Time
	switch {
	case after(created, c.plan.givenUp):
		conditions := []any{map[string]any{
			"type": "Failed", "status": "True", "reason": "NoFurtherResponder", "message": "none is left",
		}}
		testkit.Check(c.t, unstructured.SetNestedSlice(r.Object, conditions, "status", "conditions"))
		return c.client.Update(c.t.Context(), r)
	case after(created, c.plan.answered) && p != nil && p.UID == types.UID(uid) && p.DeletionTimestamp == nil:
		return c.evict("a", name, &p.UID)
	}
	return nil
}

// live lets the other programs act once.
func (c *cluster) live() {
	c.now = c.now.Add(time.Second)
	after := func(since time.Time, n int) bool { return n >= 0 && c.now.Sub(since) > time.Duration(n)*time.Second }
	list := &reservation.ReservationList{}
	testkit.Check(c.t, c.client.List(c.t.Context(), list))
	for i := range list.Items {
		r := &list.Items[i]
		c.other(func() error { return c.schedule(r, after) })
	}
	for _, r := range c.requests() {
		c.other(func() error { return c.answer(r, after) })
	}
	for _, j := range c.list() {
		if c.plan.stop > 0 && after(c.begin, c.plan.stop) && !j.Status.Phase.IsFinal() {
			metav1.SetMetaDataAnnotation(&j.ObjectMeta, annotation.AbortMigration, "true")
			c.other(func() error { return c.client.Update(c.t.Context(), j) })
		}
	}
	pods, err := c.pods.CoreV1().Pods("a").List(c.t.Context(), metav1.ListOptions{})
	testkit.Check(c.t, err)
	for i := range pods.Items {
		p := &pods.Items[i]
		_, soft := p.Annotations[annotation.SoftEvictionKey]
		switch {
		case soft && p.DeletionTimestamp == nil:
			testkit.Check(c.t, c.terminate(p))
		case p.DeletionTimestamp != nil && after(p.DeletionTimestamp.Time, c.plan.gone):
			testkit.Check(c.t, c.pods.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "a", p.Name))
		case p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" &&
			after(p.CreationTimestamp.Time, c.plan.ready):
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			testkit.Check(c.t, c.pods.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, "a"))
		}
	}
}

// schedule places a Reservation, ends it when its time is over, and lets a successor use it when the old pod goes.
func (c *cluster) schedule(r *reservation.Reservation, after func(time.Time, int) bool) error {
	update := func() error { return c.client.Status().Update(c.t.Context(), r) }
	switch phase := r.Status.Phase; {
	case phase.IsFinal():
	case r.Spec.TTL.Duration > 0 && after(r.CreationTimestamp.Time.Add(r.Spec.TTL.Duration), 10):
		r.Status.Phase = reservation.ReservationFailed
		return update()
	case phase == reservation.ReservationAvailable && after(r.CreationTimestamp.Time, c.plan.bound):
		return c.bind(r)
	case phase == reservation.ReservationAvailable:
	case c.plan.target == "":
		r.Status.Conditions = []reservation.ReservationCondition{{
			Type: reservation.ReservationScheduled, Status: metav1.ConditionFalse,
			Reason: reservation.ReasonUnschedulable, Message: "0/2 nodes are available",
		}}
		return update()
	case after(r.CreationTimestamp.Time, c.plan.scheduled):
		r.Status.Phase, r.Status.NodeName = reservation.ReservationAvailable, c.plan.target
		return update()
	}
	return nil
}

// bind lets the successor of a pod use its Reservation: a pod without node that is its owner, else a new pod.
func (c *cluster) bind(r *reservation.Reservation) error {
	var job *v1alpha1.PodMigrationJob
	for _, j := range c.list() {
		if place := c.place(j); place != nil && place.Name == r.Name {
			job = j
		}
	}
	if job == nil {
		return nil
	}
	name, uid := job.Spec.PodRef.Name, "new-"+job.Spec.PodRef.Name
	used := annotation.Encode(annotation.ReservationAllocated{Name: r.Name, UID: r.UID})
	old := c.pod(name)
	switch {
	case old != nil && old.Spec.NodeName == "":
		old.Spec.NodeName, uid = r.Status.NodeName, string(old.UID)
		metav1.SetMetaDataAnnotation(&old.ObjectMeta, annotation.ReservationAllocatedKey, used)
		if err := c.pods.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), old, "a"); err != nil {
			return err
		}
	case old != nil && old.DeletionTimestamp == nil:
		return nil
	case old != nil && c.plan.owner != "ReplicaSet": // the name is taken
		return nil
	default:
		if c.plan.owner == "ReplicaSet" {
			name = "new-" + name
		}
		p := c.addPod(name, uid, r.Status.NodeName, object.Annotation(annotation.ReservationAllocatedKey, used),
			object.Created(c.now))
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		if err := c.pods.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, "a"); err != nil {
			return err
		}
	}
	r.Status.Phase = reservation.ReservationSucceeded
	r.Status.CurrentOwners = []corev1.ObjectReference{{Namespace: "a", Name: name, UID: types.UID(uid)}}
	return c.client.Status().Update(c.t.Context(), r)
}

// run lets everything act for a time, in steps of a second. A controller that is killed is replaced by another one.
func (c *cluster) run(d time.Duration) {
	c.t.Helper()
	controller := c.start()
	for end := c.now.Add(d); c.now.Before(end); {
		c.sync()
		controller.Pass(c.t.Context())
		if c.killed {
			controller = c.start()
		}
		c.live()
		if jobs := c.list(); !slices.ContainsFunc(jobs, func(j *v1alpha1.PodMigrationJob) bool {
			return !j.Status.Phase.IsFinal() || len(j.Finalizers) > 0
		}) {
			break
		}
	}
	if left := c.requests(); len(left) > 0 {
		c.problems = append(c.problems, fmt.Sprintf("%d EvictionRequests are left", len(left)))
	}
	if len(c.problems) > 0 {
		c.t.Fatal(strings.Join(c.problems, "\n"))
	}
}

// end is what has become of a job.
type end struct {
	Phase, Reason, Message, Stage string
	New                           string // UID of the new pod
	Evictions                     int
	Place                         bool // The Reservation is left.
}

func (c *cluster) end(name string) end {
	j := c.job(name)
	e := end{
		Phase: string(j.Status.Phase), Reason: j.Status.Reason, Message: j.Status.Message, Stage: j.Status.Status,
		Evictions: len(c.evictions), Place: c.place(j) != nil,
	}
	if r := j.Status.PodRef; r != nil {
		e.New = string(r.UID)
	}
	return e
}

func usual() plan {
	return plan{target: target, owner: "ReplicaSet", scheduled: 1, gone: 1, bound: 2, ready: 1, givenUp: -1}
}

func succeeded() end {
	return end{Phase: "Succeeded", Stage: "Complete", New: "new-p", Evictions: 1, Place: true}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	with := func(change func(*plan)) plan {
		p := usual()
		change(&p)
		return p
	}
	byRequest := func(change func(*plan)) plan {
		p := usual()
		p.args = func(a *args) { a.EvictionPolicy = "Request" }
		change(&p)
		return p
	}
	direct := func(j *v1alpha1.PodMigrationJob) { j.Spec.Mode = v1alpha1.EvictDirectly }
	tests := map[string]struct {
		plan
		change func(*v1alpha1.PodMigrationJob)
		want   end
	}{
		"a pod of a ReplicaSet moves": {plan: usual(), want: succeeded()},
		"a pod of a StatefulSet comes back with its name": {
			plan: with(func(p *plan) { p.owner = "StatefulSet" }), want: succeeded(),
		},
		"a bare pod is created again by someone": {plan: with(func(p *plan) { p.owner = "" }), want: succeeded()},
		"a job without a uid is for the pod of the name": {
			plan: usual(), change: func(j *v1alpha1.PodMigrationJob) { j.Spec.PodRef.UID = "" }, want: succeeded(),
		},
		"a job that Koordinator began goes on": {
			plan: usual(), change: func(j *v1alpha1.PodMigrationJob) {
				j.Annotations = map[string]string{annotation.PassedArbitration: "true"}
				j.Status.Phase = v1alpha1.PodMigrationJobRunning
			},
			want: succeeded(),
		},
		"a pod is evicted directly": {
			plan: usual(), change: direct, want: end{Phase: "Succeeded", Stage: "Complete", Evictions: 1},
		},
		"a failed pod of another scheduler is evicted without a place": {
			plan: with(func(p *plan) {
				p.failed, p.unready, p.replicas = true, true, 1
				p.args = func(a *args) { a.SchedulerNames = []string{"koord-scheduler"} }
			}),
			want: end{Phase: "Succeeded", Stage: "Complete", Evictions: 1},
		},
		"a pod is deleted": {
			plan: with(func(p *plan) { p.args = func(a *args) { a.EvictionPolicy = "Delete" } }), want: succeeded(),
		},
		"another program deletes the pod": {
			plan: with(func(p *plan) { p.args = func(a *args) { a.EvictionPolicy = "SoftEviction" } }),
			want: end{Phase: "Succeeded", Stage: "Complete", New: "new-p", Place: true},
		},
		"other programs evict the pod on request": {
			plan: byRequest(func(p *plan) { p.answered = 20 }), want: succeeded(),
		},
		"other programs evict a pod without a place on request": {
			plan: byRequest(func(*plan) {}), change: direct,
			want: end{Phase: "Succeeded", Stage: "Complete", Evictions: 1},
		},
		"no program answers the request": {
			plan: byRequest(func(p *plan) { p.answered = -1 }),
			want: end{
				Phase: "Failed", Reason: "Timeout", Stage: "Eviction",
				Message: "the job did not end within 5m0s: the request for the eviction is withdrawn",
			},
		},
		"all programs give the request up": {
			plan: byRequest(func(p *plan) { p.answered, p.givenUp = -1, 10 }),
			want: end{
				Phase: "Failed", Reason: "FailedEvict", Stage: "Eviction",
				Message: "EvictionRequest: NoFurtherResponder: none is left",
			},
		},
		"a user stops the job that has requested the eviction": {
			plan: byRequest(func(p *plan) { p.answered, p.stop = -1, 30 }),
			want: end{Phase: "Aborted", Stage: "Eviction", Message: "a user stopped the job"},
		},
		"the API server refuses the request": {
			plan: byRequest(func(p *plan) {
				p.requestError = apierrors.NewForbidden(corev1.Resource("evictionrequests"), "r",
					errors.New("a PodGroup"))
			}),
			want: end{
				Phase: "Failed", Reason: "FailedEvict", Stage: "Eviction",
				Message: `evictionrequests "r" is forbidden: a PodGroup`,
			},
		},
		"a pod that does not exist": {
			plan: usual(), change: func(j *v1alpha1.PodMigrationJob) { j.Spec.PodRef.UID = "gone" },
			want: end{
				Phase: "Failed", Reason: "MissingPod", Message: "the pod does not exist, or is being deleted",
			},
		},
		"a pod of another scheduler": {
			plan: with(func(p *plan) { p.args = func(a *args) { a.SchedulerNames = []string{"koord-scheduler"} } }),
			want: end{
				Phase: "Failed", Reason: "ForbiddenMigratePod",
				Message: `spec.schedulerName "tenon-scheduler" of the pod is not one of ` +
					`schedulerNames ["koord-scheduler"]: no Reservation can be placed for it`,
			},
		},
		"a pod that may never be evicted": {
			plan: with(func(p *plan) { p.refuse = true }),
			want: end{Phase: "Failed", Reason: "ForbiddenMigratePod", Message: "SystemCritical: *"},
		},
		"a workload is not available": {
			plan: with(func(p *plan) { p.unready, p.replicas = true, 3 }),
			want: end{Phase: "Pending", Reason: "WorkloadUnavailable", Message: "WorkloadUnavailable: *"},
		},
		"no node has room": {
			plan: with(func(p *plan) { p.target = "" }),
			want: end{
				Phase: "Failed", Reason: "Unschedulable", Stage: "ReservationScheduled",
				Message: "the job did not end within 5m0s: 0/2 nodes are available " +
					"(the job excludes node n0 of the pod)",
			},
		},
		"the API server refuses the Reservation": {
			plan: with(func(p *plan) {
				p.createError = apierrors.NewForbidden(v1alpha1.Resource().GroupResource(), "r", errors.New("no"))
			}),
			want: end{
				Phase: "Failed", Reason: "FailedCreateReservation", Stage: "ReservationCreated",
				Message: `podmigrationjobs.scheduling.koordinator.sh "r" is forbidden: no`,
			},
		},
		"the API server fails to create the Reservation": {
			plan: with(func(p *plan) { p.createError = apierrors.NewInternalError(errors.New("etcd")) }),
			want: end{
				Phase: "Failed", Reason: "Timeout", Stage: "ReservationCreated",
				Message: "the job did not end within 5m0s: Internal error occurred: etcd",
			},
		},
		"a Reservation that a user names does not exist": {
			plan: usual(), change: func(j *v1alpha1.PodMigrationJob) {
				j.Spec.ReservationOptions = &v1alpha1.PodMigrateReservationOptions{
					ReservationRef: &corev1.ObjectReference{Name: "mine"},
				}
			},
			want: end{
				Phase: "Failed", Reason: "MissingReservation",
				Message: "the reservation of spec.reservationOptions does not exist",
			},
		},
		"the place is on the node of the pod": {
			plan: with(func(p *plan) { p.target = source }),
			want: end{
				Phase: "Failed", Reason: "ForbiddenMigratePod", Stage: "ReservationCreated",
				Message: "the reservation is on the node of the pod",
			},
		},
		"the Eviction API refuses twice": {plan: with(func(p *plan) { p.tooMany = 2 }), want: succeeded()},
		"the Eviction API refuses for ever": {
			plan: with(func(p *plan) { p.tooMany = 1000 }),
			want: end{
				Phase: "Failed", Reason: "Timeout", Stage: "Eviction",
				Message: "the job did not end within 5m0s: a PodDisruptionBudget needs 3 pods",
			},
		},
		"the API server is gone between the last check and the eviction": {
			plan: with(func(p *plan) { p.noAnswer = 20 }), want: succeeded(),
		},
		"the eviction is forbidden": {
			plan: with(func(p *plan) {
				p.evictError = apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("no right"))
			}),
			want: end{
				Phase: "Failed", Reason: "FailedEvict", Stage: "Eviction", Message: `pods "p" is forbidden: no right`,
			},
		},
		"no pod uses the place": {
			plan: with(func(p *plan) { p.bound = -1 }),
			want: end{
				Phase: "Failed", Reason: "Timeout", Stage: "PodBoundReservation", Evictions: 1, Place: true,
				Message: "the job did not end within 5m0s: no pod uses the reservation yet",
			},
		},
		"the new pod is not Ready": {
			plan: with(func(p *plan) { p.ready = -1 }),
			want: end{
				Phase: "Failed", Reason: "Timeout", Stage: "BoundPodReady", New: "new-p", Evictions: 1, Place: true,
				Message: "the job did not end within 5m0s: the new pod is not Ready yet",
			},
		},
		"a user stops the job": {
			plan: with(func(p *plan) { p.scheduled = -1 }), change: func(j *v1alpha1.PodMigrationJob) {
				j.Annotations = map[string]string{annotation.AbortMigration: "true"}
			},
			want: end{Phase: "Aborted", Message: "a user stopped the job"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, test.plan)
			c.addPod("p", "old", source)
			if test.change == nil {
				test.change = func(*v1alpha1.PodMigrationJob) {}
			}
			c.addJob("j", "p", test.change)
			c.run(8 * time.Minute)
			got := c.end("j")
			if prefix, ok := strings.CutSuffix(test.want.Message, "*"); ok && strings.HasPrefix(got.Message, prefix) {
				got.Message = test.want.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("job (-want +got):\n%s\n%+v", diff, c.job("j").Status)
			}
			if got.Evictions == 0 && got.Phase == "Failed" && c.pod("p") == nil {
				t.Error("the job failed before the eviction, and the pod is gone")
			}
		})
	}
}

func TestJobOfAPendingPodEndsWhenThePodIsBound(t *testing.T) {
	t.Parallel()
	c := newCluster(t, usual())
	c.addPod("p", "old", "")
	c.addJob("j", "p")
	c.run(time.Minute)
	want := end{Phase: "Succeeded", Stage: "Complete", New: "old", Place: true}
	if diff := cmp.Diff(want, c.end("j")); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	if got := c.pod("p").Spec.NodeName; got != target {
		t.Errorf("the pod is on %q, want %s", got, target)
	}
}

func TestMigrationIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t, usual())
	c.addPod("p", "old", source)
	c.addJob("j", "p")
	c.addJob("k", "absent")
	c.run(time.Minute)
	var got []string
	for len(c.events.Events) > 0 {
		got = append(got, <-c.events.Events)
	}
	want := []string{
		"Warning MigrationFailed Failed MissingPod: the pod does not exist, or is being deleted",
		"Normal MigrationStarted pod a/p is to move to another node",
		"Normal PodEvicted evicted by PodMigrationJob j: node n1 has reserved room for its successor",
		"Normal PodMigrated pod a/new-p runs on node n1",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

// TestAJobThatCannotBeReadWaits: it waits before it starts and once it has, is reported once for each cause unless the
// run is dry, and goes on when it is corrected.
func TestAJobThatCannotBeReadWaits(t *testing.T) {
	t.Parallel()
	for _, dry := range []bool{false, true} {
		plan := usual()
		plan.dry = dry
		c := newCluster(t, plan)
		c.addPod("p", "old", source)
		c.addJob("j", "p")
		controller := c.start()
		var reported []string
		passes := func(n int, unread string) v1alpha1.PodMigrationJobStatus {
			for c.unread = unread; n > 0; n-- {
				c.sync()
				controller.Pass(t.Context())
				c.live()
			}
			for len(c.events.Events) > 0 {
				if e := <-c.events.Events; strings.Contains(e, "cannot be read") {
					reported = append(reported, e)
				}
			}
			return c.list()[0].Status
		}
		if got := passes(20, "bad ttl"); got.Phase != v1alpha1.PodMigrationJobPending || len(got.Conditions) > 0 {
			t.Errorf("dry run %t: before it starts it is %+v", dry, got)
		}
		if passes(1, ""); !dry && !slices.ContainsFunc(c.list(), func(j *v1alpha1.PodMigrationJob) bool {
			return j.Annotations[annotation.PassedArbitration] == "true"
		}) {
			t.Error("it does not start when it is corrected")
		}
		passes(10, "bad mode")
		passes(10, "bad ttl")
		if c.pod("p").UID != "old" || len(c.evictions) > 0 {
			t.Errorf("dry run %t: its pod was evicted while it could not be read", dry)
		}
		const text = "Warning MigrationFailed cannot be read, and waits: bad "
		want := []string{text + "ttl", text + "mode", text + "ttl"}
		if dry {
			want = nil
		}
		if !slices.Equal(reported, want) {
			t.Errorf("dry run %t: Events %q, want %q", dry, reported, want)
		}
		if c.unread = ""; !dry {
			c.run(time.Minute)
			if diff := cmp.Diff(succeeded(), c.end("j")); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
		}
	}
}

// D6: a dry run writes nothing.
func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	p := usual()
	p.dry = true
	c := newCluster(t, p)
	c.addPod("p", "old", source)
	c.addJob("j", "p")
	c.addJob("gone", "absent")
	c.run(10 * time.Second)
	if c.writes > 0 || len(c.evictions) > 0 {
		t.Errorf("%d writes and evictions of %v, want none", c.writes, c.evictions)
	}
}

func TestPausedJobGoesOnWithItsWholeTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t, usual())
	c.addPod("p", "old", source)
	c.addJob("j", "p", func(j *v1alpha1.PodMigrationJob) { j.Spec.Paused = true })
	c.run(6 * time.Minute)
	if got := c.job("j").Status; got.Phase != v1alpha1.PodMigrationJobPending || len(c.evictions) > 0 {
		t.Fatalf("the paused job has %+v and evicted %v", got, c.evictions)
	}
	j := c.job("j")
	j.Spec.Paused = false
	c.other(func() error { return c.client.Update(t.Context(), j) })
	c.run(time.Minute)
	if diff := cmp.Diff(succeeded(), c.end("j")); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func TestDeletedJobGivesItsReservationUpFirst(t *testing.T) {
	t.Parallel()
	p := usual()
	p.scheduled = -1
	c := newCluster(t, p)
	c.addPod("p", "old", source)
	c.addJob("j", "p")
	c.run(5 * time.Second)
	place := c.place(c.job("j"))
	if place == nil {
		t.Fatal("the job has no Reservation")
	}
	c.other(func() error { return c.client.Delete(t.Context(), c.job("j")) })
	if c.job("j") == nil {
		t.Fatal("the job has no finalizer")
	}
	c.run(5 * time.Second)
	err := c.client.Get(t.Context(), client.ObjectKeyFromObject(place), &reservation.Reservation{})
	if !apierrors.IsNotFound(err) || c.job("j") != nil || c.pod("p").DeletionTimestamp != nil {
		t.Errorf("the Reservation: %v, the job: %v, the pod: %v", err, c.job("j"), c.pod("p"))
	}
}

// A job that has ended is deleted when no limit needs it any more, after its Reservation.
func TestEndedJobIsDeletedAfterItsReservation(t *testing.T) {
	t.Parallel()
	c := newCluster(t, usual())
	c.addPod("p", "old", source)
	c.addJob("j", "p")
	c.run(time.Minute)
	controller, place := c.start(), c.place(c.job("j"))
	c.now = c.now.Add(23 * time.Hour)
	c.sync()
	if controller.Pass(t.Context()); c.job("j") == nil {
		t.Fatal("the job was deleted while the backoff of its owner needs it")
	}
	c.now = c.now.Add(2 * time.Hour)
	for range 3 {
		c.sync()
		controller.Pass(t.Context())
	}
	err := c.client.Get(t.Context(), client.ObjectKeyFromObject(place), &reservation.Reservation{})
	if !apierrors.IsNotFound(err) || c.job("j") != nil {
		t.Errorf("the Reservation: %v, the job: %v", err, c.job("j"))
	}
}

// A gang that would lose its minimum is evicted when all members have their places, and not at all when one has none.
func TestGangMovesWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	member := object.Label(annotation.PodGroup, "g")
	for name, test := range map[string]struct {
		jobs      []string
		target    string
		evictions int
	}{
		"all members have jobs":      {[]string{"p", "q"}, target, 2},
		"one member has no job":      {[]string{"p"}, target, 0},
		"the members have no places": {[]string{"p", "q"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := usual()
			p.owner, p.target = "", test.target
			p.args = func(a *args) { a.DefaultJobTTL.Duration, a.EvictionPolicy = time.Minute, "Request" }
			c := newCluster(t, p)
			c.bond = gang.Bond{Least: 2}
			c.addPod("p", "old-p", source, member)
			c.addPod("q", "old-q", source, member)
			for _, pod := range test.jobs {
				c.addJob(pod, pod)
			}
			c.run(2 * time.Minute)
			if len(c.evictions) != test.evictions {
				t.Errorf("evicted %v, want %d pods", c.evictions, test.evictions)
				for _, j := range c.list() {
					t.Logf("%s: %+v", j.Name, j.Status)
				}
			}
		})
	}
}

// A job whose process is killed after any write, or before it, ends as the job of a process that is not killed.
func TestJobEndsTheSameAfterAKillAtEachWrite(t *testing.T) {
	t.Parallel()
	failed := usual()
	failed.target = ""
	fails := func(p plan) plan { p.bound = -1; return p }
	stateful := usual()
	stateful.owner = "StatefulSet"
	requested := usual()
	requested.policy = "Request"
	for name, p := range map[string]plan{
		"other programs evict the pod": requested,
		"a pod moves":                  usual(), "a pod keeps its name": stateful, "no node has room": failed,
		"no pod uses the place": fails(usual()),
	} {
		p.args = func(a *args) {
			a.DefaultJobTTL.Duration, a.EvictionPolicy = 40*time.Second, stdcmp.Or(p.policy, a.EvictionPolicy)
		}
		run := func(kill int, before bool) (*cluster, end) {
			c := newCluster(t, p)
			c.kill, c.before = kill, before
			c.addPod("p", "old", source)
			c.addJob("j", "p")
			c.run(8 * time.Minute)
			return c, c.end("j")
		}
		all, want := run(0, false)
		for kill := 1; kill <= all.writes; kill++ {
			for _, before := range []bool{false, true} {
				c, got := run(kill, before)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: killed at write %d of %d (-want +got):\n%s\n%+v", name, kill, all.writes, diff,
						c.job("j").Status)
				}
			}
		}
	}
}
