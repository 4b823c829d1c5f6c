package status

import (
	"context"
	gojson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Annotations sends an Event on a pod about its annotations that cannot be used.
func (r *Reporter) Annotations(pod *convert.Pod) {
	text := ""
	for _, p := range pod.Problems {
		text += fmt.Sprintf("; annotation %s is not used: %s: %s", p.Key, p.Text, p.Value)
	}
	r.mu.Lock()
	reported := r.annotations[pod.UID]
	if text == "" {
		delete(r.annotations, pod.UID)
	} else {
		r.annotations[pod.UID] = text
	}
	r.mu.Unlock()
	if text != "" && text != reported {
		r.send(podObject(pod.Namespace, pod.Name, pod.UID), event.BadAnnotation, "Read", "%s", text[len("; "):])
	}
}

// ForgetPod drops what was reported of a pod that is gone.
func (r *Reporter) ForgetPod(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.annotations, uid)
}

// conflictAge is how long two pods must both be there before a conflict between them is reported: of two changes that
// happened one after the other a list may show the later one first.
const conflictAge = 2 * time.Second

// claim is a contradiction that was met.
type claim struct {
	since    time.Time
	reported bool
}

// Claims sends Events on each pod about what its allocation contradicts. A conflict of two pods needs both to be live,
// UIDs of the pods that the API has: the processes of a pod that was deleted may still end on CPUs that are another's
// by now. settled is false while a conflict is not old enough: Claims is to be called again.
func (r *Reporter) Claims(view *ledger.View, live map[string]bool) (settled bool) {
	settled = true
	now, next := r.o.Clock.Now(), map[ledger.Problem]claim{}
	var fresh []ledger.Problem
	r.mu.Lock()
	for _, p := range view.Problems() {
		if p.Other != "" && !(live[p.UID] && live[p.Other]) {
			continue
		}
		c, known := r.claims[p]
		if !known {
			c.since = now
		}
		switch {
		case c.reported:
		case p.Other != "" && now.Sub(c.since) < conflictAge:
			settled = false
		default:
			c.reported = true
			fresh = append(fresh, p)
		}
		next[p] = c
	}
	r.claims = next
	r.mu.Unlock()
	for _, p := range fresh {
		for _, uid := range []string{p.UID, p.Other} {
			if e, ok := view.Entry(uid); ok {
				reason, note := describe(p)
				r.send(podObject(e.Namespace, e.Name, types.UID(uid)), reason, "Read", "%s", note)
			}
		}
	}
	return settled
}

func describe(p ledger.Problem) (reason event.Reason, note string) {
	cpus := view.CPUs(p.CPUs)
	are := "are"
	if !strings.HasPrefix(cpus, "CPUs") {
		are = "is"
	}
	switch p.Kind {
	case ledger.HeldTwice:
		return event.AllocationConflict, fmt.Sprintf(
			"%s %s allocated to two pods: the one that was first keeps its allocation, the other one does not start "+
				"there",
			cpus, are)
	case ledger.Reserved:
		return event.AllocationConflict, fmt.Sprintf("%s of the pod's allocation %s reserved on this node", cpus, are)
	case ledger.Offline:
		return event.BoundCPUOffline, fmt.Sprintf(
			"%s of the pod's allocation %s offline: until that ends, it runs on the rest of the allocation", cpus, are)
	case ledger.UnknownNUMA:
		return event.AllocationUnusable, fmt.Sprintf(
			"this machine has no CPUs on NUMA nodes %s of the pod's allocation", p.CPUs)
	case ledger.Overcommitted:
		return event.AllocationConflict, view.DebtText(p.Debt) + "; this pod holds the most"
	case ledger.Malformed:
		return event.AllocationUnusable, fmt.Sprintf("the pod's allocation %q is not a list of CPUs", p.CPUs)
	}
	return event.AllocationUnusable, fmt.Sprintf("%s of the pod's allocation %s left out: %s on this machine", cpus,
		are, p.Kind)
}

// Overlap keeps the condition KubeletStaticActive: whether the kubelet has assigned CPUs, by UID, that are exclusive to
// another pod of the account. Both are among the live pods: a kubelet's record may name one that is gone.
func (r *Reporter) Overlap(ctx context.Context, view *ledger.View, assigned map[string][]int, live map[string]bool,
) error {
	text := overlap(view, assigned, live)
	if text == "" {
		return r.Set(ctx, event.KubeletStaticActive, false, "NoOverlap",
			"no CPU that the kubelet assigned is exclusive to another pod")
	}
	return r.Set(ctx, event.KubeletStaticActive, true, "AssignmentsOverlap", text)
}

// overlap names the first pod whose exclusive CPUs the kubelet has assigned to another one; "" when there is none.
func overlap(view *ledger.View, assigned map[string][]int, live map[string]bool) string {
	machine := view.Machine()
	if machine == nil || len(assigned) == 0 {
		return ""
	}
	for e := range view.Entries() {
		if !e.Role.Binds() || !live[e.UID] {
			continue
		}
		own := view.CPUsOf(e.UID)
		for _, uid := range slices.Sorted(maps.Keys(assigned)) {
			theirs, _, err := machine.ParseList(cpuset.FormatIDs(assigned[uid]))
			if taken := own.Intersect(theirs); uid != e.UID && live[uid] && err == nil && !taken.IsEmpty() {
				return fmt.Sprintf(
					"the kubelet's static policy has assigned CPUs %s, which are exclusive to pod %s/%s, to the pod "+
						"with UID %s: "+
						"the agent keeps that pod off them; set the kubelet's policy to none once the take-over has "+
						"ended", machine.FormatList(taken), e.Namespace, e.Name, uid)
			}
		}
	}
	return ""
}

// Outcomes of evictions, as values of a metric's label.
const (
	outcomeEvicted = "evicted"
	outcomeFailed  = "failed"
)

// Evict deletes a best-effort pod of the node, with its grace period, and says why in its condition DisruptionTarget,
// by which Jobs may leave the failure out of their backoff limit, and in an Event. A pod that is gone counts as
// evicted.
//
// It is not the Eviction API: an Eviction does not say on which node the pod is, so no admission policy could keep an
// agent from evicting the pods of other nodes.
func (r *Reporter) Evict(ctx context.Context, v besteffort.Eviction) error {
	pods := r.o.Client.CoreV1().Pods(v.Pod.Namespace)
	patch, err := gojson.Marshal(map[string]any{
		"metadata": map[string]any{"uid": v.Pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: event.BestEffortEvicted.String(),
			Message: shorten("%s", v.Why), LastTransitionTime: metav1.NewTime(r.o.Clock.Now()),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode condition of pod %s: %w", klog.KObj(v.Pod), err)
	}
	_, err = pods.Patch(ctx, v.Pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		err = pods.Delete(ctx, v.Pod.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &v.Pod.UID},
		})
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // another pod has its name, or none
	case err != nil:
		return fmt.Errorf("evict pod %s: %w", klog.KObj(v.Pod), err)
	}
	r.o.Metrics.Evictions.WithLabelValues(string(v.Cause), outcomeEvicted).Inc()
	klog.FromContext(ctx).Info("Evicted a best-effort pod", "pod", klog.KObj(v.Pod), "node", r.o.Node, "why", v.Why)
	r.send(podObject(v.Pod.Namespace, v.Pod.Name, v.Pod.UID), event.BestEffortEvicted, "Evict", "evicted: %s", v.Why)
	return nil
}

// NotEvicted reports that Evict failed.
func (r *Reporter) NotEvicted(ctx context.Context, v besteffort.Eviction, err error) {
	r.o.Metrics.Evictions.WithLabelValues(string(v.Cause), outcomeFailed).Inc()
	klog.FromContext(ctx).Error(err, "Cannot evict a best-effort pod, will retry", "pod", klog.KObj(v.Pod),
		"node", r.o.Node)
}
