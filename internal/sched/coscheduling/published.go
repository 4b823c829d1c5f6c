package coscheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/view"
)

// publish lets others read what is kept, if it has changed, and wakes the pods behind it that may start now: no other
// event says so.
func (r *reservations) publish(logger klog.Logger) {
	if len(r.kept)+len(r.published) == 0 {
		return
	}
	holds := r.holds()
	if maps.Equal(r.kept, r.published) {
		return
	}
	for name, h := range r.published {
		if r.leavesRoom(h, r.kept[name]) {
			r.cluster.wakeBehind(logger)
			break
		}
	}
	r.published = maps.Clone(r.kept)
	for i := range holds {
		h := r.kept[holds[i].Rank.Name]
		holds[i].Nodes = maps.Clone(h.nodes)
		holds[i].Over = h.search.Ends.OverOn(slices.Collect(maps.Keys(h.on)), h.Start)
	}
	slices.SortFunc(holds, func(a, b gang.Hold) int { return a.Rank.Compare(b.Rank) })
	r.cluster.Gangs.Read(func(s *gang.State) { s.PublishHolds(holds) })
}

// leavesRoom reports whether pods may start behind a unit that did not before: it holds nothing now, and has not
// started, or starts later, so that more pods end before. The queue itself wakes pods when a nomination changes.
func (r *reservations) leavesRoom(was, now *reservation) bool {
	if now == nil {
		return !r.hasStarted(was)
	}
	return now.Start.After(was.Start)
}

// noteStart notes that a pod that starts alone gets a node.
func (r *reservations) noteStart(pod *corev1.Pod) {
	if len(r.kept) == 0 {
		return
	}
	if h := r.kept[r.cluster.Gangs.RankOf(pod).Name]; h != nil {
		h.started = h.single
	}
}

// hasStarted reports whether what held nodes is known to have started.
func (r *reservations) hasStarted(h *reservation) bool {
	return h.started || kube.Ask(r.cluster.Gangs, func(s *gang.State) bool {
		for uid := range h.nodes {
			if s.IsOpen(uid) {
				return true
			}
		}
		return false
	})
}

// wakeBehind lets all pods be tried again that do not fit.
func (c *Cluster) wakeBehind(logger klog.Logger) {
	ended := fwk.ClusterEvent{Resource: fwk.WildCard, ActionType: fwk.All, CustomLabel: "HoldEnded"}
	c.Core.Queue().MoveAllToActiveOrBackoffQueue(logger, ended, nil, nil, nil)
}

// seenHold is a hold about which an Event was sent. gone is when it was found to have ended; zero before.
type seenHold struct {
	gang.Hold
	gone time.Time
}

// reportHolds sends an Event when a unit begins to hold nodes, unless the leader before has sent it, and when it holds
// none any more and still waits. One that starts holds none either, and its pods get their nodes within heldDelay.
func (h *Held) reportHolds(ctx context.Context) {
	now := h.Clock.Now()
	if h.holds == nil {
		h.holds, h.led = map[string]*seenHold{}, now
	}
	for _, s := range h.holds {
		if s.gone.IsZero() {
			s.gone = now
		}
	}
	for _, hold := range kube.Ask(h.Gangs, (*gang.State).Holds) {
		name := hold.Unit()
		if s := h.holds[name]; s != nil {
			s.Hold, s.gone = hold, time.Time{}
			continue
		}
		if hold.Renewed && now.Sub(h.led) < renewedFor {
			h.holds[name] = &seenHold{Hold: hold}
			continue
		}
		if !h.budget.TryAccept() {
			return
		}
		h.holds[name] = &seenHold{Hold: hold}
		h.reportHold(ctx, hold, event.NodesHeld, "for "+name+": "+
			view.HoldOf(hold, kube.Ask(h.Gangs, (*gang.State).HoldRules)).Text(now.UTC().AddDate(-1, 0, 0)))
	}
	for name, s := range h.holds {
		if s.gone.IsZero() || now.Sub(s.gone) < heldDelay {
			continue
		}
		if !h.budget.TryAccept() {
			return
		}
		delete(h.holds, name)
		h.reportHold(ctx, s.Hold, event.HoldEnded, name+" no longer holds nodes, and has not started")
	}
}

// reportHold sends an Event about the PodGroup of a gang, else about a pod of the unit, if any of its pods waits.
func (h *Held) reportHold(ctx context.Context, hold gang.Hold, e event.Reason, message string) {
	pod, err := h.waitingPod(ctx, hold)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Event about held nodes not sent", "for", hold.Unit())
	}
	if pod == nil {
		return
	}
	var about runtime.Object = pod
	if g := h.Gangs.Object(h.Gangs.GangOf(pod)); g != nil {
		about = g
	}
	h.Recorder(pod.Spec.SchedulerName).Eventf(about, nil, e.Type(), e.String(), "Scheduling", "%s", message)
}

// waitingPod returns a pod of the unit of a hold that has no node; nil where all have started, or are gone.
func (h *Held) waitingPod(ctx context.Context, hold gang.Hold) (*corev1.Pod, error) {
	if unit := strings.Split(hold.Unit(), "/"); unit[0] == "pod" { // the gangs do not know it
		pod, err := h.Client.CoreV1().Pods(unit[1]).Get(ctx, unit[2], metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("read pod %s/%s: %w", unit[1], unit[2], err)
		case hold.Nodes[string(pod.UID)] == "" || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil:
			return nil, nil
		}
		return pod, nil
	}
	for _, uid := range slices.Sorted(maps.Keys(hold.Nodes)) {
		if pod := h.Gangs.Pod(uid); pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			return pod, nil
		}
	}
	return nil, nil
}
