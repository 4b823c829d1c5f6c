package app

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	// readLimit bounds the time until all objects were read, deltaLimit that until a pod is in the accounts of which
	// the API server says that it is bound, and compareLimit a comparison.
	readLimit    = 10 * time.Minute
	deltaLimit   = 10 * time.Second
	compareLimit = 20 * time.Second
	// mostQueued bounds the pods that wait for their comparison, and mostReasons the reasons why others are skipped.
	mostQueued  = 1000
	mostReasons = 20
)

// Shadow is a scheduler that decides about no pod. It follows a cluster that other schedulers serve, and says of each
// pod that they bind what it would have decided. It only reads.
//
// Pods are compared one by one in the order in which their bindings are seen. A pod counts as there for those after it
// once its turn is over, compared or not: so each comparison has the cluster of its own moment, however late it comes.
type Shadow struct {
	*Scheduler
	denied <-chan error // a right that is missing

	mu sync.Mutex // guards the fields below
	// settled are the pods that were bound before the one that is compared, by UID.
	settled map[string]bool
	// queue has the pod that is compared, and those that wait.
	queue []boundPod
	// wake holds a value if queue has changed.
	wake chan struct{}
	// report has the last pods that were compared, at most most of them.
	report *view.ShadowReport
	most   int
	// devices are those of past. Only the goroutine of Run uses them.
	devices map[string]ledger.Entry
}

// boundPod is a pod that has got a node. compare is false if no scheduler chose the node, or too many pods wait.
type boundPod struct {
	*corev1.Pod
	compare  bool
	rejected string // why its kubelet has rejected it while it waits; "" while it has not
}

// NewShadow returns a Shadow of the cluster of a configuration, whose report has the last pods, at most most of them.
// Clients are made that cannot write.
func NewShadow(ctx context.Context, cluster *rest.Config, most int) (*Shadow, error) {
	denied := make(chan error, 1)
	o := NewOptions()
	o.SchedulerNames = []string{SchedulerName}
	if err := o.applyGates(); err != nil {
		return nil, err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, fmt.Errorf("set feature gates: %w", err)
	}
	settings, err := DefaultConfig(o.SchedulerNames)
	if err != nil {
		return nil, err
	}
	o.ComponentConfig = settings
	c := &config.Config{
		ComponentConfig: *settings, KubeConfig: ReadOnly(cluster, func(err error) {
			select {
			case denied <- err:
			default: // the first one is reported
			}
		}),
		ComponentGlobalsRegistry:          o.ComponentGlobalsRegistry,
		PodMaxInUnschedulablePodsDuration: o.Deprecated.PodMaxInUnschedulablePodsDuration,
	}
	c.KubeConfig.QPS, c.KubeConfig.Burst = 50, 100
	client, err := kubernetes.NewForConfig(c.KubeConfig)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	objects, err := dynamic.NewForConfig(c.KubeConfig)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	c.EventBroadcaster = events.NewEventBroadcasterAdapterWithContext(ctx, client) // never started: no Event is sent
	c.InformerFactory = scheduler.NewInformerFactory(client, 0, nil)
	c.DynInformerFactory = dynamicinformer.NewFilteredDynamicSharedInformerFactory(objects, 0, corev1.NamespaceAll, nil)
	s, err := assemble(ctx, o, c)
	if err != nil {
		return nil, err
	}
	s.whatIf.Deadline = compareLimit
	return &Shadow{
		Scheduler: s, denied: denied, settled: map[string]bool{}, wake: make(chan struct{}, 1),
		report: view.NewShadowReport(time.Now()), most: most, devices: map[string]ledger.Entry{},
	}, nil
}

// Run reads the cluster, calls ready, and compares each pod that is bound from then on, until compared returns false or
// ctx ends, which is not an error. A right that is missing is one.
func (s *Shadow) Run(ctx context.Context, ready func(), compared func(view.ShadowPod) (more bool)) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.denied:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	pods := s.config.InformerFactory.Core().V1().Pods().Informer()
	known, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) { s.see(nil, o, initial) },
		UpdateFunc: func(old, o any) {
			was, _ := old.(*corev1.Pod)
			s.see(was, o, false)
		},
		DeleteFunc: kube.Handler(func(*corev1.Pod) {}, s.forget).OnDelete,
	})
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	if _, err := s.failed.AddEventHandler(kube.Handler(s.reject, func(*corev1.Pod) {})); err != nil {
		return fmt.Errorf("follow failed pods: %w", err)
	}
	go s.failed.RunWithContext(ctx)
	s.config.InformerFactory.Start(ctx.Done())
	s.config.DynInformerFactory.Start(ctx.Done())
	reading, stop := context.WithTimeoutCause(ctx, readLimit,
		fmt.Errorf("not all objects of the cluster were read within %s", readLimit))
	defer stop()
	s.config.InformerFactory.WaitForCacheSync(reading.Done())
	s.config.DynInformerFactory.WaitForCacheSync(reading.Done())
	cache.WaitForCacheSync(reading.Done(), known.HasSynced, s.failed.HasSynced)
	if err := s.core.WaitForHandlersSync(reading); err != nil || reading.Err() != nil { // some objects have no handler
		return ended(outer, reading)
	}
	s.store.MarkSynced()
	s.report.Since = time.Now().UTC()
	ready()
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ended(outer, ctx)
		}
		for pod, has := s.next(); has; pod, has = s.next() {
			var got *view.ShadowPod
			if pod.compare {
				got = s.compare(ctx, pod.Pod)
				if ctx.Err() != nil {
					return ended(outer, ctx)
				}
			}
			if s.markCompared(got); got != nil && !compared(*got) {
				return nil
			}
		}
	}
}

// ended is why a context has ended, nil where the outer one has.
func ended(outer, ctx context.Context) error {
	select {
	case <-outer.Done():
		return nil
	default:
		return context.Cause(ctx)
	}
}

// see takes a pod that has a node and had none before; was is nil for a new one. Those of the first list are settled at
// once: when and why they were bound is not known.
func (s *Shadow) see(was *corev1.Pod, o any, initial bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || was != nil && was.Spec.NodeName != "" || convert.IsReservePod(pod) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if initial {
		s.settled[string(pod.UID)] = true
		return
	}
	compare := was != nil || boundAt(pod) != nil // else it was created with its node
	if compare && len(s.queue) >= mostQueued {
		compare = false
		s.report.Skipped["too many pods at once"]++
	}
	s.queue = append(s.queue, boundPod{Pod: pod, compare: compare})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// markCompared takes the first pod out of the queue, and adds it to the report if it was compared. It counts for those
// that are compared after it, unless it has been deleted: forget is not called again for that.
func (s *Shadow) markCompared(got *view.ShadowPod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.queue[0]
	s.queue = s.queue[1:]
	if got != nil {
		got.Rejected = pod.rejected
		s.report.Add(got, s.most)
	}
	if now, err := s.pods().Pods(pod.Namespace).Get(pod.Name); err == nil && now.UID == pod.UID {
		s.settled[string(pod.UID)] = true
	}
	maps.DeleteFunc(s.devices, func(uid string, _ ledger.Entry) bool { return !s.settled[uid] })
}

func (s *Shadow) forget(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settled, string(pod.UID))
}

func (s *Shadow) reject(pod *corev1.Pod) {
	reason, rejected := convert.Rejected(pod)
	if !rejected {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Reject(string(pod.UID), reason)
	for i := range s.queue {
		if s.queue[i].UID == pod.UID {
			s.queue[i].rejected = reason
		}
	}
}

// next returns the first pod of the queue, which stays there until markCompared.
func (s *Shadow) next() (pod boundPod, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return pod, false
	}
	return s.queue[0], true
}

// skip counts a pod that is not compared.
func (s *Shadow) skip(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if skipped := s.report.Skipped; skipped[why] == 0 && len(skipped) >= mostReasons {
		why = "other errors"
	}
	s.report.Skipped[why]++
}

// compare compares one pod; nil where that is not possible.
func (s *Shadow) compare(ctx context.Context, pod *corev1.Pod) *view.ShadowPod {
	if !s.awaitAccount(ctx, pod) {
		s.skip("the pod did not appear in the accounts")
		return nil
	}
	got, err := s.whatIf.Compare(ctx, pod, whatif.Past{
		Scheduler: SchedulerName, Devices: s.devices, Before: func(uid string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.settled[uid]
		},
	})
	if err != nil {
		s.skip(err.Error())
		return nil
	}
	if at := boundAt(pod); at != nil {
		got.BoundAt, got.LagSeconds = at.UTC(), time.Since(*at).Seconds()
	}
	return &got
}

// awaitAccount waits until the accounts, which follow pods by themselves, have a bound pod. The pod was seen by one
// informer handler and the accounts are kept by another; neither waits for the other.
func (s *Shadow) awaitAccount(ctx context.Context, pod *corev1.Pod) bool {
	limit, stop := context.WithTimeout(ctx, deltaLimit)
	defer stop()
	return cache.WaitForCacheSync(limit.Done(), func() bool {
		if _, err := s.core.Nodes.GetPod(pod); err == nil {
			return true
		}
		now, err := s.pods().Pods(pod.Namespace).Get(pod.Name)
		return err != nil || now.UID != pod.UID // it has ended
	})
}

// Report returns the report. It is called after Run.
func (s *Shadow) Report() *view.ShadowReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Until = time.Now().UTC()
	for _, name := range s.store.Nodes() {
		r.Nodes++
		v := s.store.View(name)
		if v.Machine() != nil {
			r.Topologies++
		}
		if v.Devices() != nil {
			r.Inventories++
		}
	}
	return r
}

// boundAt is when the API server bound a pod; nil for one that no scheduler has bound.
func boundAt(pod *corev1.Pod) *time.Time {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}
