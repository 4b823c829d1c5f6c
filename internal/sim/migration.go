package sim

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/desched/migration"
	"github.com/tenon-project/tenon/internal/desched/policy"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Migration is what a PodMigrationJob does.
type Migration struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// From is the node of the pod, To that of its successor, or of the room that is held for it.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Phase is that of the job when nothing more happens without time passing.
	Phase string `json:"phase"`
	// Reason and Message say why the job has failed, or what it waits for.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// maxPasses bounds how often the controller looks at all jobs: each pass in which something changes is one second.
const maxPasses = 1000

// jobs are the PodMigrationJobs of an input, and the controller that advances them.
type jobs struct {
	*engine
	all   cache.Store
	known *watched.Cluster
	now   time.Time
	from  map[string]string // nodes, by job
}

// addMigration adds a job as the API server would store it.
func (w *world) addMigration(at origin, j *v1alpha1.PodMigrationJob, p *problems) {
	j.UID = cmp.Or(j.UID, types.UID(j.Name))
	j.Status.Phase = cmp.Or(j.Status.Phase, v1alpha1.PodMigrationJobPending)
	w.migrations = append(w.migrations, j)
	if at.stored {
		return
	}
	var template *reservation.Reservation
	if o := j.Spec.ReservationOptions; o != nil && o.Template != nil {
		var err error
		if template, err = kube.ReadReservation(o.Template.Raw); err != nil {
			p.add(at, "spec.reservationOptions.template: %s", oneLine(err))
			return
		}
	}
	answer := admission.PodMigrationJob(j, nil, template, nil)
	for _, refusal := range answer.Refusals {
		p.add(at, "%s", refusal.String())
	}
}

// addOwner adds an owner of pods, whose rollout the limits of migrations read. One of a manifest without status has
// rolled out.
func (w *world) addOwner(o metav1.Object, kind string) {
	switch t := o.(type) {
	case *appsv1.Deployment:
		if s := &t.Status; s.ObservedGeneration == 0 {
			n := *t.Spec.Replicas
			s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas = t.Generation, n, n, n
		}
	case *appsv1.ReplicaSet:
		if s := &t.Status; s.ObservedGeneration == 0 && t.Spec.Replicas != nil {
			n := *t.Spec.Replicas
			s.ObservedGeneration, s.Replicas, s.ReadyReplicas = t.Generation, n, n
		}
	case *appsv1.StatefulSet:
		if s := &t.Status; s.ObservedGeneration == 0 {
			n := *t.Spec.Replicas
			s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas = t.Generation, n, n, n
		}
	}
	text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	utilruntime.Must(err) // it was decoded
	u := &unstructured.Unstructured{Object: text}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
	w.owners = append(w.owners, u)
}

// newJobs returns the jobs of a world before any is started.
func newJobs(e *engine, w *world) *jobs {
	j := &jobs{
		engine: e, all: cache.NewStore(cache.MetaNamespaceKeyFunc), known: watched.NewUnconnected(),
		now: w.latest().Add(time.Minute).Truncate(time.Second), from: map[string]string{},
	}
	if w.live {
		j.now = time.Now()
	}
	for _, n := range w.nodes {
		j.known.PutNode(n)
	}
	for _, n := range w.namespaces {
		j.known.PutNamespace(n)
	}
	for _, g := range w.podGroups {
		j.known.PutGroup(g)
	}
	for _, o := range w.owners {
		j.known.PutOwner(o)
	}
	for _, o := range w.listed {
		if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
			j.known.PutBudget(b)
		}
	}
	for _, o := range e.api.pods.GetStore().List() {
		j.known.PutPod(o.(*corev1.Pod))
	}
	e.api.pods.handlers = append(e.api.pods.handlers, kube.Handler(j.known.PutPod, j.known.RemovePod))
	for _, one := range w.migrations {
		if one.CreationTimestamp.IsZero() {
			one.CreationTimestamp = metav1.NewTime(j.now)
		}
		j.put(one)
		if o, has, _ := e.api.pods.GetStore().GetByKey(podKey(one)); has {
			j.from[one.Name] = o.(*corev1.Pod).Spec.NodeName
		}
	}
	return j
}

// migrate lets the descheduler's controller advance all jobs until nothing changes, and returns what they have reached.
func (e *engine) migrate(ctx context.Context, w *world) ([]Migration, error) {
	out := []Migration{}
	if len(w.migrations) == 0 {
		return out, nil
	}
	j := newJobs(e, w)
	controller, err := j.controller()
	if err != nil {
		return nil, err
	}
	e.api.evicted = j.replace
	for range maxPasses {
		before := e.api.version
		controller.Pass(ctx)
		if err := e.run(ctx); err != nil {
			return nil, err
		}
		if e.reconcileReservations(ctx); e.api.version == before {
			break
		}
		j.now = j.now.Add(time.Second)
	}
	for _, one := range w.migrations {
		if !one.Status.Phase.IsFinal() {
			out = append(out, j.result(one))
		}
	}
	slices.SortFunc(out, func(a, b Migration) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (j *jobs) controller() (*migration.Controller, error) {
	settings, err := descheduler.Read("", nil)
	if err != nil {
		return nil, err
	}
	settings.Migration.SchedulerNames = schedulerNames
	limits, err := policy.NewPolicy(settings, "tenon-system", nil)
	if err != nil {
		return nil, err
	}
	return migration.New(migration.Options{
		Args: settings.Migration, Client: objects{jobs: j}, Pods: j.client, Jobs: j.all,
		Reservations: j.api.reservations, Cluster: j.known, Policy: limits, Events: &events.FakeRecorder{},
		Metrics: migration.NewMetrics(), Clock: j,
	}), nil
}

// Now and Since make the jobs the controller's clock.
func (j *jobs) Now() time.Time                   { return j.now }
func (j *jobs) Since(at time.Time) time.Duration { return j.now.Sub(at) }

// podKey names the pod of a job in the store of pods.
func podKey(j *v1alpha1.PodMigrationJob) string {
	return j.Spec.PodRef.Namespace + "/" + j.Spec.PodRef.Name
}

// put stores a job with a new resource version.
func (j *jobs) put(one *v1alpha1.PodMigrationJob) {
	j.api.stamp(one)
	utilruntime.Must(j.all.Add(one))
	j.known.PutJob(one)
}

// replace deletes a pod that was evicted, and creates what its controller creates in its place. The successor has the
// pod's name, which other controllers than that of StatefulSets choose anew.
func (j *jobs) replace(old *corev1.Pod) {
	j.api.remove(old)
	if metav1.GetControllerOfNoCopy(old) == nil {
		return
	}
	next := convert.Successor(old)
	next.UID, next.CreationTimestamp = "successor/"+old.UID, metav1.NewTime(j.now)
	j.moved[old.UID] = true
	j.api.create(j.api.pods, next)
}

// result returns what a job has reached that had not ended before.
func (j *jobs) result(was *v1alpha1.PodMigrationJob) Migration {
	object, known, _ := j.all.Get(was)
	ref := was.Spec.PodRef
	out := Migration{Name: was.Name, Namespace: ref.Namespace, Pod: ref.Name, From: j.from[was.Name]}
	if !known { // the controller deletes jobs that ended long ago
		return out
	}
	s := &object.(*v1alpha1.PodMigrationJob).Status
	out.To, out.Phase, out.Reason, out.Message = s.NodeName, string(s.Phase), s.Reason, s.Message
	if out.To == "" && s.Phase == v1alpha1.PodMigrationJobSucceeded {
		if o, has, _ := j.api.pods.GetStore().GetByKey(podKey(was)); has {
			out.To = o.(*corev1.Pod).Spec.NodeName
		}
	}
	for _, c := range s.Conditions {
		switch isPause := c.Type == move.Paused; {
		case s.Phase.IsFinal() || out.Reason != "" || isPause != (c.Status == metav1.ConditionTrue):
		case isPause:
			out.Reason, out.Message = c.Type, c.Message
		default:
			out.Reason, out.Message = c.Reason, c.Message
		}
	}
	return out
}

// objects are the jobs and Reservations for the controller, which calls no other method of a client.
type objects struct {
	client.Client
	*jobs
}

// Get reads a job or a Reservation.
func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	var found any
	var known bool
	resource := reservation.Resource()
	switch t := into.(type) {
	case *v1alpha1.PodMigrationJob:
		if found, known, _ = o.all.GetByKey(key.Name); known {
			found.(*v1alpha1.PodMigrationJob).DeepCopyInto(t)
		}
		resource = v1alpha1.Resource()
	case *reservation.Reservation:
		if found, known, _ = o.api.reservations.GetByKey(key.Name); known {
			found.(*reservation.Reservation).DeepCopyInto(t)
		}
	}
	if !known {
		return apierrors.NewNotFound(resource.GroupResource(), key.Name)
	}
	return nil
}

// List reads all jobs or all Reservations, in the order of their names.
func (o objects) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch t := into.(type) {
	case *v1alpha1.PodMigrationJobList:
		for _, key := range slices.Sorted(slices.Values(o.all.ListKeys())) {
			one, _, _ := o.all.GetByKey(key)
			t.Items = append(t.Items, *one.(*v1alpha1.PodMigrationJob).DeepCopy())
		}
	case *reservation.ReservationList:
		for _, key := range slices.Sorted(slices.Values(o.api.reservations.ListKeys())) {
			one, _, _ := o.api.reservations.GetByKey(key)
			t.Items = append(t.Items, *one.(*reservation.Reservation).DeepCopy())
		}
	}
	return nil
}

// Create stores a Reservation, unless the webhook refuses it.
func (o objects) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	r := object.(*reservation.Reservation).DeepCopy()
	if _, exists, _ := o.api.reservations.GetByKey(r.Name); exists {
		return apierrors.NewAlreadyExists(reservation.Resource().GroupResource(), r.Name)
	}
	if answer := admission.Reservation(r, nil, o.store.Kinds().List()); !answer.Allowed() {
		return apierrors.NewBadRequest(answer.Refusals[0].String())
	}
	r.UID, r.CreationTimestamp = types.UID(r.Name), metav1.NewTime(o.now)
	r.Status.Phase = reservation.ReservationPending
	o.api.putReservation(r)
	return nil
}

// Update stores a job.
func (o objects) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	o.put(object.(*v1alpha1.PodMigrationJob).DeepCopy())
	return nil
}

// Delete deletes a job or a Reservation.
func (o objects) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	o.api.version++
	switch t := object.(type) {
	case *v1alpha1.PodMigrationJob:
		o.known.RemoveJob(t)
		return o.all.Delete(t)
	case *reservation.Reservation:
		o.api.table.Remove(t)
		return o.api.reservations.Delete(t)
	}
	return nil
}

// Status writes the status of a job.
func (o objects) Status() client.SubResourceWriter { return status{objects: o} }

type status struct {
	client.SubResourceWriter
	objects objects
}

// Update stores a job with its status.
func (s status) Update(ctx context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.objects.Update(ctx, object)
}
