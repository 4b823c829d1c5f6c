package coscheduling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

const (
	// heldPeriod is the time between two looks at the pods that wait.
	heldPeriod = time.Second
	// heldDelay is how long a reason lasts before it is written: the members of most gangs are created at once.
	heldDelay = 5 * time.Second
	// resolverPeriod is the time between two searches for NonStrict gangs that keep each other from starting.
	resolverPeriod = 5 * time.Second
	// renewedFor is how long a new leader takes holds for those of the one before that were nominated already.
	renewedFor = 5 * time.Minute
	// heldRepeat is the least time between two writes about a pod that is held for reasons of one code.
	heldRepeat = time.Minute

	// heldPerSecond and heldBurst bound the writes of all gangs together.
	heldPerSecond = 20
	heldBurst     = 100
)

// Held writes why pods wait for their gang, before the queue, which upstream does for none but its own gates, or behind
// it: a condition of each pod, and one Event for all gangs that start together. It also ends what has waited for too
// long.
type Held struct {
	// Gangs is the state of all gangs. Its pods are those of the informer.
	Gangs *kube.Gangs
	// Client writes the conditions of pods.
	Client clientset.Interface
	// Recorder returns the recorder of a profile.
	Recorder func(schedulerName string) events.EventRecorderLogger
	// Leading reports whether this process may write.
	Leading func() bool
	// Clock is the real one but in tests.
	Clock clock.WithTicker
	// LookForDeadlocks is called as often as it is to be looked whether gangs keep each other from starting.
	LookForDeadlocks func(klog.Logger) bool
	// Order makes a change of the gangs' state that no event and no cycle brings, and that reports whether there was
	// one; nil makes it at once.
	Order func(kind kube.OwnChange, change func(now time.Time) bool)
	// Withdraw is called with pods that are nominated to a node and held back.
	Withdraw func(*corev1.Pod)
	// PlainReasons makes Unschedulable the reason of all conditions.
	PlainReasons bool

	// The rest belongs to the goroutine that calls Look, which makes it in its first call.
	// budget bounds all writes together.
	budget flowcontrol.RateLimiter
	// known has the pods that wait now, by UID.
	known map[string]*held
	// kept has since when nodes are kept for the members that show it, by UID.
	kept map[string]time.Time
	// reported has what the last Event about a group was about, by group, as long as a pod of it waits.
	reported map[string]why.Code
	// overruled has the UIDs of the pods that got an Event because another pod decides about their gang, as long as it
	// does.
	overruled map[string]bool
	// holds has the holds about which an Event was sent, by unit. led is when it was first looked for them.
	holds map[string]*seenHold
	led   time.Time
}

// held is what is known of a pod that is held back.
type held struct {
	// refusal is why the pod waits now.
	refusal gang.Refusal
	// since is when it began to wait for that.
	since time.Time
	// said is the reason that was written last; zero before the first write.
	said gang.Refusal
	// written is when said was written.
	written time.Time
	// group names the gangs that start together, separated by commas.
	group string
}

// Run writes until ctx ends.
func (h *Held) Run(ctx context.Context) {
	tick := h.Clock.NewTicker(heldPeriod)
	defer tick.Stop()
	deadlocks := h.Clock.NewTicker(resolverPeriod)
	defer deadlocks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			h.order(kube.Expire, func(now time.Time) bool { return Expire(h.Gangs, now) })
			h.EvictInterrupted(ctx)
			h.Look(ctx)
		case <-deadlocks.C():
			if h.Leading() {
				h.order(kube.Deadlocks, func(time.Time) bool { return h.LookForDeadlocks(klog.FromContext(ctx)) })
			}
		}
	}
}

// order makes a change of the gangs' state, through Order if something has to know of it.
func (h *Held) order(kind kube.OwnChange, change func(now time.Time) bool) {
	if h.Order != nil {
		h.Order(kind, change)
	} else {
		change(h.Clock.Now())
	}
}

// Expire ends what has waited for too long at a time, and reports whether anything had.
func Expire(gangs *kube.Gangs, now time.Time) (ended bool) {
	gangs.Update(func(s *gang.State) gang.Effects {
		effects := s.Expire(now)
		ended = len(effects.Opened)+len(effects.Allow)+len(effects.Release) > 0
		return effects
	})
	return ended
}

// EvictInterrupted evicts the bound members of gangs whose start was interrupted and whose waiting time is over. A
// member that a disruption budget keeps, or whose eviction fails, is tried again later.
func (h *Held) EvictInterrupted(ctx context.Context) {
	var due []string
	h.Gangs.Update(func(s *gang.State) gang.Effects {
		// The state lists each member once, and again later if it still exists.
		due = s.Evictions(h.Clock.Now())
		return gang.Effects{}
	})
	for _, uid := range due {
		pod := h.Gangs.Pod(uid)
		if pod == nil || !h.Leading() {
			continue
		}
		gangID := h.Gangs.GangOf(pod)
		err := h.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)},
		})
		outcome := "evicted"
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone
			continue
		case apierrors.IsTooManyRequests(err):
			outcome = "not evicted: " + err.Error()
		case err != nil:
			klog.FromContext(ctx).Error(err, "Member of an interrupted gang not evicted", "pod", klog.KObj(pod))
			continue
		}
		e := event.GangInterrupted
		h.Recorder(pod.Spec.SchedulerName).Eventf(pod, nil, e.Type(), e.String(), "Evict", "%s: the scheduler stopped "+
			"while it bound gang %s, and the rest did not fit within the waiting time", outcome, gangID)
	}
}

// Look writes about the pods that are due, as many as the budget allows. One goroutine may call it.
func (h *Held) Look(ctx context.Context) {
	if !h.Leading() {
		return
	}
	if h.budget == nil {
		h.budget = flowcontrol.NewTokenBucketRateLimiterWithClock(heldPerSecond, heldBurst, h.Clock)
		h.reported = map[string]why.Code{}
	}
	now, was := h.Clock.Now(), h.known
	h.known = map[string]*held{} // without the pods that do not wait any more
	waiting := sets.New[string]()
	overruled := map[*corev1.Pod]string{} // what the Event says
	pods := h.Gangs.Pods(func(p *corev1.Pod, s *gang.State) bool {
		uid := string(p.UID)
		if winner, found := s.Overruled(uid); found && p.Spec.NodeName == "" {
			overruled[p] = fmt.Sprintf("what the pod says of gang %s differs from what %s says, which is older and "+
				"counts", s.GangOf(uid), winner)
		}
		r := s.Why(uid)
		if r.Code == why.None || r.Pod == p.Namespace+"/"+p.Name {
			return false // its own reason was written when it was tried
		}
		k := cmp.Or(was[uid], &held{})
		h.known[uid], k.group = k, cmp.Or(s.Bond(s.GangOf(uid)).Group, s.GangOf(uid))
		waiting.Insert(k.group)
		if k.refusal != r {
			k.refusal, k.since = r, now
		}
		return true
	})
	h.overrule(overruled)
	maps.DeleteFunc(h.reported, func(group string, _ why.Code) bool { return !waiting.Has(group) })
	h.withdraw(ctx)
	h.conceal(ctx, now)
	h.reportHolds(ctx)
	for _, p := range pods {
		k := h.known[string(p.UID)]
		due := k.said.Code != k.refusal.Code || k.said != k.refusal && now.Sub(k.written) >= heldRepeat
		if p.Spec.NodeName != "" || !due || now.Sub(k.since) < heldDelay {
			continue
		}
		if !h.budget.TryAccept() {
			return
		}
		if err := h.write(ctx, p, k); err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Failed to write why a pod of a gang is held back", "pod", klog.KObj(p))
			continue
		}
		k.said, k.written = k.refusal, now
	}
}

// overrule sends an Event about each pod for which another one decides about the gang, once.
func (h *Held) overrule(pods map[*corev1.Pod]string) {
	was := h.overruled
	h.overruled = map[string]bool{}
	e := event.GangConfigMismatch
	for p, text := range pods {
		uid := string(p.UID)
		if !was[uid] {
			if !h.budget.TryAccept() {
				continue
			}
			h.Recorder(p.Spec.SchedulerName).Eventf(p, nil, e.Type(), e.String(), "Scheduling", "%s", text)
		}
		h.overruled[uid] = true
	}
}

// eventOf is the Event about a reason.
func eventOf(c why.Code) event.Reason {
	switch c {
	case why.GangSiblingFailed:
		return event.GangRoundFailed
	case why.GangTimeout:
		return event.GangTimeout
	case why.GangDeadlockReleased:
		return event.GangDeadlockReleased
	}
	return event.GangHeld
}

// write writes why a pod waits: its condition, of a gang whose waiting time was over also the annotation that says so,
// and the Event. It writes nothing that the pod says already.
func (h *Held) write(ctx context.Context, p *corev1.Pod, k *held) error {
	message := (&refusal{k.refusal}).Message()
	status := p.Status.DeepCopy()
	condition := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}
	condition.Reason = corev1.PodReasonUnschedulable
	if !h.PlainReasons {
		condition.Reason = k.refusal.Condition()
	}
	if podutil.UpdatePodCondition(status, &condition) {
		if err := schedpod.PatchStatus(ctx, h.Client, p, status); err != nil {
			return err
		}
		h.report(p, k, message)
	}
	if k.refusal.Code == why.GangTimeout && p.Annotations[annotation.GangTimeout] == "" {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, p.UID, annotation.GangTimeout)
		if _, err := h.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	h.reported[k.group] = k.refusal.Code // also where a scheduler before this one wrote
	return nil
}

// report sends the Event about the gangs that start with a pod, once for each reason: about the PodGroup of the gang
// that the reason names, else of the pod, or else about the pod.
func (h *Held) report(p *corev1.Pod, k *held, message string) {
	if h.reported[k.group] == k.refusal.Code {
		return
	}
	var about runtime.Object = p
	for _, id := range []string{h.Gangs.GangOf(p), k.refusal.Gang} {
		if g := h.Gangs.Object(id); g != nil && slices.Contains(strings.Split(k.group, ","), id) {
			about = g
		}
	}
	e := eventOf(k.refusal.Code)
	h.Recorder(p.Spec.SchedulerName).Eventf(about, nil, e.Type(), e.String(), "Scheduling", "%s", message)
}
