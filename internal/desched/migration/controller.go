package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// requestTimeout bounds what one job waits for the API server.
	requestTimeout = 10 * time.Second
	// stepsPerPass is the most steps that a job takes before the other jobs take theirs.
	stepsPerPass = 8
)

// Values of evictionPolicy beside Eviction, the Eviction API, which keeps PodDisruptionBudgets.
const (
	byDelete  = "Delete"       // a delete request
	bySoft    = "SoftEviction" // an annotation: another program deletes the pod
	byRequest = "Request"      // an EvictionRequest: other programs evict the pod
)

// Options are what a controller reads and writes.
type Options struct {
	// Args are of the plugin MigrationController, complete and checked. DryRun writes nothing, whatever they say.
	Args   descheduler.MigrationControllerArgs
	DryRun bool
	// Client reads and writes jobs, Reservations and EvictionRequests without a cache, see NewClient. Pods reads and
	// evicts pods.
	Client client.Client
	Pods   kubernetes.Interface
	// Jobs, Reservations and Requests are caches. Requests are of RequestInformer, with evictionPolicy Request.
	Jobs, Reservations, Requests cache.Store
	Cluster                      Cluster
	Policy                       *evict.Policy
	Events                       events.EventRecorder
	// Metrics are registered by the caller.
	Metrics *Metrics
	Clock   clock.PassiveClock
}

// Cluster is what is known of the cluster.
type Cluster interface {
	// Pod returns a pod, nil where there is none; PodsOf all pods of a namespace.
	Pod(namespace string, uid types.UID) *corev1.Pod
	PodsOf(namespace string) []*corev1.Pod
	// Read calls a function with the state that the limits read. PutJob makes a job that was written part of it.
	Read(func(*evict.State))
	PutJob(*v1alpha1.PodMigrationJob)
}

// Controller moves pods. One at a time may run: the leader's.
type Controller struct {
	Options
	// shown are the jobs that a dry run has logged. unread is why jobs cannot be read, as it was reported.
	shown  map[types.UID]bool
	unread map[types.UID]string
	// decoded has the jobs of the cache that were read in this pass, and fleet all of them; nil until a job needs it.
	decoded map[*v1alpha1.PodMigrationJob]*move.Job
	fleet   *fleet
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	o.DryRun = o.DryRun || o.Args.DryRun
	return &Controller{Options: o, shown: map[types.UID]bool{}}
}

// NewScheme has the kinds that Client has to know.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(reservation.AddToScheme(s), v1alpha1.AddToScheme(s))
}

// NewClient returns a client for Options.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// Start moves pods until ctx ends. The caches must be synced.
func (c *Controller) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, c.Pass, cmp.Or(c.Args.ArbitrationArgs.Interval.Duration, 500*time.Millisecond))
	return nil
}

// Pass lets every job take the steps that it can take now.
func (c *Controller) Pass(ctx context.Context) {
	var waiting []*v1alpha1.PodMigrationJob
	c.reportUnread(ctx)
	jobs := c.jobs()
	c.decoded, c.fleet = make(map[*v1alpha1.PodMigrationJob]*move.Job, len(jobs)), nil
	for _, j := range jobs {
		c.decoded[j] = c.decode(j)
	}
	for _, j := range jobs {
		if m := c.job(j); !m.Status.Phase.IsFinal() && !m.Passed && !m.Paused && !m.Stop {
			waiting = append(waiting, j)
		} else if !c.DryRun {
			c.advance(ctx, j, nil)
		}
	}
	refused := c.arbitrate(ctx, waiting)
	c.Metrics.waiting(refused)
}

// reportUnread reports the jobs that cannot be read, once for each cause.
func (c *Controller) reportUnread(ctx context.Context) {
	reported := c.unread
	c.unread = map[types.UID]string{}
	for _, object := range c.Jobs.List() {
		j := object.(*v1alpha1.PodMigrationJob)
		if j.Unread == "" {
			continue
		}
		c.unread[j.UID] = j.Unread
		if reported[j.UID] == j.Unread {
			continue
		}
		klog.FromContext(ctx).Info("Job cannot be read", "podMigrationJob", j.Name, "why", j.Unread)
		if !c.DryRun {
			c.event(j, event.MigrationFailed, "cannot be read, and waits: %s", j.Unread)
		}
	}
}

// jobs returns the jobs of the cache that can be read and name a pod, the oldest first.
func (c *Controller) jobs() (all []*v1alpha1.PodMigrationJob) {
	for _, object := range c.Jobs.List() {
		if j := object.(*v1alpha1.PodMigrationJob); j.Spec.PodRef != nil && j.Unread == "" {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.PodMigrationJob) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// job returns what a step reads of a job. The caller does not change it.
func (c *Controller) job(j *v1alpha1.PodMigrationJob) *move.Job {
	if m := c.decoded[j]; m != nil {
		return m
	}
	return c.decode(j)
}

func (c *Controller) decode(j *v1alpha1.PodMigrationJob) *move.Job {
	m := convert.MigrationJob(j)
	m.Direct = cmp.Or(string(j.Spec.Mode), c.Args.DefaultJobMode) == string(v1alpha1.EvictDirectly)
	if m.TTL = c.Args.DefaultJobTTL.Duration; j.Spec.TTL != nil {
		m.TTL = j.Spec.TTL.Duration
	}
	m.Named = placeName(j) != "" && placeName(j) != defaultPlace(j)
	return m
}

// arbitrate starts the jobs that may start, and returns why the others do not, by UID.
func (c *Controller) arbitrate(ctx context.Context, waiting []*v1alpha1.PodMigrationJob) map[string]evict.Refusal {
	known := map[string]move.Job{}
	c.Cluster.Read(func(s *evict.State) {
		for _, j := range waiting {
			if e, ok := s.Job(string(j.UID)); ok && e.IsWaiting() {
				known[e.UID] = e
			}
		}
	})
	var asking, passed []move.Job
	var refused map[string]evict.Refusal
	own := map[string]*move.Refusal{}
	for _, j := range waiting {
		e := known[string(j.UID)]
		pod := c.Cluster.Pod(e.Namespace, types.UID(e.PodUID))
		if pod == nil {
			continue
		} else if own[e.UID] = c.foreign(c.job(j), pod); own[e.UID] == nil {
			asking = append(asking, e)
		}
	}
	c.Cluster.Read(func(s *evict.State) { passed, refused = s.Arbitrate(c.Policy, asking, c.Clock.Now()) })
	for _, j := range waiting {
		uid := string(j.UID)
		if i := slices.IndexFunc(passed, func(e move.Job) bool { return e.UID == uid }); i >= 0 {
			c.start(ctx, j, &passed[i])
		} else if !c.DryRun {
			c.advance(ctx, j, cmp.Or(own[uid], refusal(refused, uid)))
		}
	}
	return refused
}

func refusal(refused map[string]evict.Refusal, uid string) *move.Refusal {
	if r, ok := refused[uid]; ok {
		return &move.Refusal{Code: string(r.Code), Text: r.String(), Final: r.Final()}
	}
	return nil
}

// foreign refuses a pod for which no Reservation can be placed.
func (c *Controller) foreign(m *move.Job, pod *corev1.Pod) *move.Refusal {
	name := pod.Spec.SchedulerName
	if m.Direct || pod.Status.Phase == corev1.PodFailed || slices.Contains(c.Args.SchedulerNames, name) {
		return nil
	}
	return &move.Refusal{Final: true, Text: fmt.Sprintf(
		"spec.schedulerName %q of the pod is not one of schedulerNames %q: no Reservation can be placed for it", name,
		c.Args.SchedulerNames)}
}

// start writes that a job has passed arbitration, and what its pod is.
func (c *Controller) start(ctx context.Context, j *v1alpha1.PodMigrationJob, known *move.Job) {
	log := klog.FromContext(ctx)
	pod := c.Cluster.Pod(known.Namespace, types.UID(known.PodUID))
	if pod == nil {
		return // the next pass sees that it is gone
	}
	if c.DryRun {
		if !c.shown[j.UID] {
			c.shown[j.UID] = true
			log.Info("Job would start", "podMigrationJob", j.Name, "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		}
		return
	}
	started := j.DeepCopy()
	metav1.SetMetaDataAnnotation(&started.ObjectMeta, annotation.PassedArbitration, "true")
	metav1.SetMetaDataAnnotation(&started.ObjectMeta, annotation.MigrationStartKey,
		annotation.Encode(annotation.MigrationStart{
			Time: metav1.NewTime(c.now()), Node: pod.Spec.NodeName, Workload: known.Workload, Gang: known.Gang,
		}))
	controllerutil.AddFinalizer(started, annotation.MigrationFinalizer)
	started.Spec.PodRef.UID = pod.UID
	if pod.Status.Phase == corev1.PodFailed { // its controller has replaced it already
		started.Spec.Mode = v1alpha1.EvictDirectly
	}
	if !c.job(started).Direct && placeName(j) == "" {
		if started.Spec.ReservationOptions == nil {
			started.Spec.ReservationOptions = &v1alpha1.PodMigrateReservationOptions{}
		}
		gv := reservation.GroupVersion().String()
		started.Spec.ReservationOptions.ReservationRef = &corev1.ObjectReference{
			APIVersion: gv, Kind: "Reservation", Name: defaultPlace(j),
		}
	}
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.written(started, c.Client.Update(request, started)); err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			log.Error(err, "Job not started", "podMigrationJob", j.Name)
		}
		return
	}
	log.Info("Job started", "podMigrationJob", j.Name, "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	c.advance(ctx, started, nil)
}

// written makes the answer to a write known before its event comes.
func (c *Controller) written(j *v1alpha1.PodMigrationJob, err error) error {
	if err == nil {
		c.Cluster.PutJob(j.DeepCopy())
	}
	return err
}

// now is the time in whole seconds, as objects have it.
func (c *Controller) now() time.Time { return c.Clock.Now().Truncate(time.Second) }

// advance lets a job take the steps that it can take now.
func (c *Controller) advance(ctx context.Context, j *v1alpha1.PodMigrationJob, refused *move.Refusal) {
	if err := c.tryAdvance(ctx, j, refused); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Job not advanced", "podMigrationJob", j.Name)
	}
}

func (c *Controller) tryAdvance(ctx context.Context, j *v1alpha1.PodMigrationJob, refused *move.Refusal) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	status, do, err := c.step(ctx, j, cached{c}, refused, nil)
	if err != nil || !c.changes(j, status, do) {
		return err
	}
	var failure *move.Failure
	for range stepsPerPass {
		fresh := &v1alpha1.PodMigrationJob{}
		if err := client.IgnoreNotFound(c.Client.Get(ctx, client.ObjectKeyFromObject(j), fresh)); err != nil {
			return fmt.Errorf("read the job: %w", err)
		} else if fresh.UID != j.UID {
			return nil
		}
		status, do, err = c.step(ctx, fresh, live{c}, refused, failure)
		if err != nil || !c.changes(fresh, status, do) {
			return err
		}
		was := fresh.Status.DeepCopy()
		if convert.SetMigrationStatus(&fresh.Status, &status); !reflect.DeepEqual(was, &fresh.Status) {
			if err := c.written(fresh, c.Client.Status().Update(ctx, fresh)); err != nil {
				return fmt.Errorf("write the status: %w", err)
			}
			c.report(ctx, fresh, was)
		}
		if failure, err = c.act(ctx, fresh, do); err != nil {
			return err
		}
	}
	return nil
}

// step decides the next step of a job.
func (c *Controller) step(ctx context.Context, j *v1alpha1.PodMigrationJob, from source, refused *move.Refusal,
	failure *move.Failure,
) (move.Status, move.Action, error) {
	m := c.job(j)
	w, err := c.world(ctx, j, m, from)
	if err != nil {
		return move.Status{}, move.Wait, err
	}
	w.Failure = cmp.Or(failure, w.Failure)
	if refused != nil {
		w.Refused = refused
	}
	status, do := move.Step(m, w)
	return status, do, nil
}

// changes reports whether a step changes anything.
func (c *Controller) changes(j *v1alpha1.PodMigrationJob, status move.Status, do move.Action) bool {
	if do == move.Finish && !controllerutil.ContainsFinalizer(j, annotation.MigrationFinalizer) {
		do = move.Wait
	}
	return do != move.Wait || !reflect.DeepEqual(status, c.job(j).Status)
}

// act does what follows the write of a status. An error is not of the job: it is tried again in the next pass.
func (c *Controller) act(ctx context.Context, j *v1alpha1.PodMigrationJob, do move.Action) (*move.Failure, error) {
	switch do {
	case move.Reserve:
		return c.reserve(ctx, j)
	case move.Evict:
		return c.evict(ctx, j), nil
	case move.Withdraw:
		return nil, c.withdraw(ctx, j)
	case move.Release:
		place, err := readPlace(ctx, j, live{c})
		if err != nil || place == nil {
			return nil, err
		}
		uid := place.UID
		return nil, client.IgnoreNotFound(c.Client.Delete(ctx, place, client.Preconditions{UID: &uid}))
	case move.Finish:
		if controllerutil.RemoveFinalizer(j, annotation.MigrationFinalizer) {
			return nil, client.IgnoreNotFound(c.written(j, c.Client.Update(ctx, j)))
		}
	case move.Remove:
		uid := j.UID
		return nil, client.IgnoreNotFound(c.Client.Delete(ctx, j, client.Preconditions{UID: &uid}))
	}
	return nil, nil
}

// evict asks for the eviction of the pod with the UID of the job.
func (c *Controller) evict(ctx context.Context, j *v1alpha1.PodMigrationJob) *move.Failure {
	options := cmp.Or(j.Spec.DeleteOptions, c.Args.DefaultDeleteOptions, &metav1.DeleteOptions{}).DeepCopy()
	options.Preconditions = metav1.NewUIDPreconditions(string(j.Spec.PodRef.UID))
	namespace, name := j.Spec.PodRef.Namespace, j.Spec.PodRef.Name
	var err error
	switch policy := c.Args.EvictionPolicy; {
	case policy == byDelete:
		err = c.Pods.CoreV1().Pods(namespace).Delete(ctx, name, *options)
	case policy == bySoft:
		err = c.ask(ctx, j, options)
	case c.requestsEviction(j):
		err = c.request(ctx, j)
	default:
		err = kube.Evict(ctx, c.Pods, namespace, name, options)
	}
	outcome := "failed"
	failure := &move.Failure{Action: move.Evict}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		outcome, failure = "evicted", nil
	case apierrors.IsTooManyRequests(err):
		outcome, failure.Text = "refused", err.Error()
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err):
		failure.Text, failure.Unknown = err.Error(), true
	default:
		failure.Text = err.Error()
		failure.Final = apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	}
	c.Metrics.evictions.WithLabelValues(outcome).Inc()
	c.reportEviction(ctx, j, failure)
	return failure
}

// ask marks a pod for the program that deletes it.
func (c *Controller) ask(ctx context.Context, j *v1alpha1.PodMigrationJob, o *metav1.DeleteOptions) error {
	at := metav1.NewTime(c.now())
	o.Preconditions = nil
	request := annotation.SoftEviction{
		Timestamp: &at, DeleteOptions: o, Initiator: component, Reason: "PodMigrationJob " + j.Name,
	}
	patch, err := patchOf(string(j.Spec.PodRef.UID), annotation.SoftEvictionKey, annotation.Encode(request))
	if err == nil {
		_, err = c.Pods.CoreV1().Pods(j.Spec.PodRef.Namespace).Patch(ctx, j.Spec.PodRef.Name, types.MergePatchType,
			patch, metav1.PatchOptions{})
	}
	return err
}
