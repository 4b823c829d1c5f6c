package sim

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// arrival is a pod of a journal that was seen before it had a node.
type arrival struct {
	pod *corev1.Pod // as it arrived
	at  time.Time
	// node and placed are where and when it was bound, ended is when it left its node or was deleted. Zero values mean
	// that the journal has no record of it.
	node          string
	placed, ended time.Time
	preempted     bool // it was evicted for another pod: how long it would have run is not known
	seed          uint32
}

// observe learns from an event of the pod what became of it.
func (a *arrival) observe(p *corev1.Pod, op string, at time.Time) {
	if p.Spec.NodeName != "" && a.placed.IsZero() {
		a.node, a.placed = p.Spec.NodeName, at
	}
	if hasEnded(p, op) && a.ended.IsZero() {
		a.ended = at
	}
	a.preempted = a.preempted || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// hasEnded reports whether a pod holds nothing any more after an event.
func hasEnded(p *corev1.Pod, op string) bool {
	return op == journal.Delete || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// outcome is what a course made of an arrival. node is "" until it is placed. left is set where the pod has left its
// node, or was deleted while it waited.
type outcome struct {
	node      string
	at, left  time.Time
	preempted bool
}

// course is a replay in which pods arrive as recorded, and the engine decides by itself what becomes of them. A pod
// that the journal has on a node leaves as long after its placement as there.
type course struct {
	core.Unrecorded
	*replay
	config *config.KubeSchedulerConfiguration // nil: that of the journal

	arrivals map[types.UID]*arrival
	outcomes map[types.UID]*outcome // of arrivals that the configuration serves
}

// Next begins the cycle of a pod, with the seed of the journal.
func (c *course) Next(inner core.NextPod) core.NextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		c.cycle.End()
		pod, err := inner(logger)
		if pod != nil && err == nil {
			seed := uint32(0)
			if a := c.arrivals[pod.Pod.UID]; a != nil {
				seed = a.seed
			}
			c.cycle.Begin(pod.Pod, seed)
		}
		return pod, err
	}
}

// Profile draws lots by the seed of the cycle.
func (c *course) Profile(inner *ranking.Profile) framework.Framework { return c.watch(inner, &c.cycle) }

// follow sees what becomes of the pods of an engine.
func (c *course) follow(e *engine) {
	c.left = func(p *corev1.Pod) {
		if s := c.outcomes[p.UID]; s != nil && s.left.IsZero() {
			s.left = c.at
		}
	}
	e.api.deleted = func(p *corev1.Pod) {
		if s := c.outcomes[p.UID]; s != nil {
			s.left, s.preempted = c.at, true
		}
	}
	e.api.pods.handlers = append(e.api.pods.handlers, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) {
			p := now.(*corev1.Pod)
			s, a := c.outcomes[p.UID], c.arrivals[p.UID]
			if s == nil || s.node != "" || p.Spec.NodeName == "" {
				return
			}
			s.node, s.at = p.Spec.NodeName, c.at
			if !a.placed.IsZero() && !a.ended.IsZero() && !a.preempted {
				c.leave(departure{c.at.Add(a.ended.Sub(a.placed)), p})
			}
		},
	})
}

// apply applies a record, after the time until it has passed.
func (c *course) apply(ctx context.Context, record *journal.Record) error {
	if err := c.pass(ctx, record.Time); err != nil {
		return err
	}
	c.reachRecord(record)
	if record.Event == nil {
		return nil
	}
	o, err := c.decode(record)
	if op := record.Event.Op; err != nil || op != journal.Put && op != journal.Delete {
		return err // what the scheduler did by itself, the engine does anew
	}
	switch o := o.(type) {
	case *corev1.Pod:
		c.putPod(ctx, o, record.Event.Op)
	case *reservation.Reservation:
		c.putReservation(o, record)
	default:
		err = c.engine.put(record.Event, o)
	}
	if err != nil || record.Gen < c.loaded {
		return err
	}
	return c.decideAll(ctx)
}

// putPod applies the event of a pod. What the journal has of its binding and its end counts only for other pods than
// arrivals.
func (c *course) putPod(ctx context.Context, p *corev1.Pod, op string) {
	a, served := c.arrivals[p.UID], slices.Contains(c.names(), p.Spec.SchedulerName)
	if a == nil || !served && c.outcomes[p.UID] == nil {
		if served && op == journal.Put && p.Spec.NodeName == "" {
			return // it is placed as recorded
		}
		c.replay.putPod(ctx, p, op)
		return
	}
	s := c.outcomes[p.UID]
	switch old := c.pod(p.UID); {
	case hasEnded(p, op) && a.placed.IsZero():
		c.drop(p)
	case hasEnded(p, op): // it leaves when its time on the node is over
	case s == nil:
		key := p.Namespace + "/" + p.Name
		if o, has, _ := c.engine.api.pods.GetStore().GetByKey(key); has { // a successor ends the pod that had its name
			c.drop(o.(*corev1.Pod))
		}
		c.keys[p.UID] = key
		c.outcomes[p.UID] = &outcome{}
		now := p.DeepCopy()
		now.Status = corev1.PodStatus{Phase: corev1.PodPending}
		c.engine.api.create(c.engine.api.pods, now)
	case old != nil:
		now := p.DeepCopy()
		now.Status = old.Status
		if p.Spec.NodeName != "" || old.Spec.NodeName != "" {
			now.Spec.NodeName, now.Annotations = old.Spec.NodeName, old.Annotations
		}
		c.engine.api.replace(c.engine.api.pods, old, now)
	}
}

// putReservation applies the event of a Reservation. Its status is that of the course, unless it had one at first.
func (c *course) putReservation(r *reservation.Reservation, record *journal.Record) {
	api := c.engine.api
	old, known, _ := api.reservations.GetByKey(r.Name)
	switch {
	case record.Event.Op == journal.Delete && known:
		_ = api.reservations.Delete(r) // in memory
		api.table.Remove(r)
	case record.Event.Op == journal.Put:
		now := r.DeepCopy()
		if known && old.(*reservation.Reservation).UID == r.UID {
			now.Status = old.(*reservation.Reservation).Status
		} else if record.Gen > c.loaded {
			now.Status = reservation.ReservationStatus{Phase: reservation.ReservationPending}
		}
		api.putReservation(now)
	}
}

// usage adds up how the GPUs of a cluster are used over time. measure is nil where they are not measured.
type usage struct {
	measure func() deviceshare.GPULoad
	now     deviceshare.GPULoad
	// seconds is the time that has passed, used and lost are GPU seconds.
	seconds, used, lost float64
}

// read measures the GPUs now.
func (u *usage) read() {
	if u.measure != nil {
		u.now = u.measure()
	}
}

// pass adds a time in which nothing has changed.
func (u *usage) pass(d time.Duration) {
	u.seconds += d.Seconds()
	u.used += d.Seconds() * float64(u.now.Used) / 1000
	u.lost += d.Seconds() * float64(u.now.Lost) / 1000
}
