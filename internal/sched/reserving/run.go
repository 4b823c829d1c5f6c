package reserving

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
)

// Writer writes the status of Reservations, and deletes those that have ended, while this process leads.
type Writer struct {
	// Reservations is the account, which makes the requests.
	Reservations *kube.Reservations
	// Nodes reports nodes that are deleted: Reservations on them fail.
	Nodes coreinformers.NodeInformer
	// Leading reports whether this process writes. Others keep their account warm.
	Leading func() bool
	// Synced is closed when every object that existed at start is known.
	Synced <-chan struct{}
}

// Run reconciles each Reservation that may have changed, until ctx ends. It begins when all objects are known.
func (w *Writer) Run(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.UID]())
	w.Reservations.OnChange(queue.Add)
	_, err := w.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			for _, r := range w.Reservations.On(name) {
				queue.Add(r.UID)
			}
		}
	}})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to follow nodes; reservations on deleted nodes do not fail at once")
	}
	select {
	case <-w.Synced:
	case <-ctx.Done():
		return
	}
	for _, uid := range w.Reservations.UIDs() { // some came before OnChange
		queue.Add(uid)
	}
	kube.Work(ctx, queue, "Failed to reconcile a reservation; it is tried again", w.reconcile)
}

// followerPause is how often a process that does not lead looks whether it does.
const followerPause = 5 * time.Second

// reconcile writes the status of one Reservation, and returns after what time to look again; 0 for never.
func (w *Writer) reconcile(ctx context.Context, uid types.UID) (time.Duration, error) {
	if !w.Leading() {
		return followerPause, nil
	}
	w.Reservations.Lead()
	again, err := w.Reservations.Reconcile(ctx, uid, w.Reservations.KeepEnded, w.nodeGone)
	if again.IsZero() {
		return 0, err
	}
	return max(time.Until(again), 1), err
}

// nodeGone reports whether a node is known not to exist.
func (w *Writer) nodeGone(name string) bool {
	_, err := w.Nodes.Lister().Get(name)
	return apierrors.IsNotFound(err)
}

// Fail returns a failure handler around inner. A reserve pod does not exist on the API server: the handler queues it
// again, and writes the reason to the Reservation's condition. Other pods go to inner.
func Fail(core loop.Core, r *kube.Reservations, inner loop.Fail,
) loop.Fail {
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		if !convert.IsReservePod(pod.Pod) {
			inner(ctx, f, pod, status, nominating, start)
			return
		}
		logger := klog.FromContext(ctx)
		if fit := (*framework.FitError)(nil); errors.As(status.AsError(), &fit) {
			pod.UnschedulablePlugins = fit.Diagnosis.UnschedulablePlugins
			pod.PendingPlugins = fit.Diagnosis.PendingPlugins
		}
		_, now := r.Find(pod.Pod.UID)
		if now == nil || now.Spec.NodeName != "" {
			core.Queue().Done(pod.Pod.UID)
			return // it is gone, or placed after all
		}
		node := now.Status.NominatedNodeName
		if nominating != nil && nominating.Mode() == fwk.ModeOverride {
			node = nominating.NominatedNodeName
		}
		r.Refuse(pod.Pod.UID, status.Message(), node)
		now = now.DeepCopy()
		now.Status.NominatedNodeName = node
		pod.PodInfo, _ = framework.NewPodInfo(now) // its affinity was read before
		queue := core.Queue()
		if err := queue.AddUnschedulablePodIfNotPresent(logger, pod, queue.SchedulingCycle()); err != nil {
			logger.Error(err, "Failed to queue a reservation again", "reservation", klog.KObj(now))
		}
		queue.AddNominatedPod(logger, pod.PodInfo, nominating) // so that no other pod takes what victims leave
	}
}
