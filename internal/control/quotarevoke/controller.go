package quotarevoke

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
)

const (
	// refusedPause is how long a pod is left alone whose eviction was refused; it doubles up to maxRefusedPause.
	refusedPause, maxRefusedPause = 10 * time.Second, 5 * time.Minute
	// marksPerPass is the most pods that a pass marks, those that go first first.
	marksPerPass = 20
	// imminent is how long before its eviction a pod has a second Event.
	imminent = 10 * time.Second
)

// Options are how a controller works.
type Options struct {
	Policy quota.RevokePolicy
	// DryRun reports what would be evicted, and neither marks nor evicts.
	DryRun bool
	// Delay is how long a quota must use more than its goal. Interval is the time between two passes.
	Delay, Interval time.Duration
	Limits          quota.Limits
	// Read calls a function with the account, which may not be used after it.
	Read    func(func(*quota.Account))
	Pods    corelisters.PodLister
	Budgets policylisters.PodDisruptionBudgetLister
	Client  kubernetes.Interface
	// Object returns an ElasticQuota, about which Events are sent; nil where there is none.
	Object    func(group, namespace, name string) *v1alpha1.ElasticQuota
	Events    events.EventRecorder
	Evictions *prometheus.CounterVec // by outcome: evicted, refused or failed
}

// Controller revokes. One at a time may run: the leader's.
type Controller struct {
	Options
	revoker *quota.Revoker

	marked  map[types.UID]*mark
	refused *flowcontrol.Backoff // of pods whose eviction was refused, by UID
	// leaving are the members of a gang of which another member was evicted: they follow, whatever a plan says.
	leaving []*corev1.Pod
	// reported is what was last said of a quota from which nothing can be taken, or in a dry run.
	reported map[string]string
}

// mark is what a pod's condition says.
type mark struct {
	pod    *corev1.Pod
	due    time.Time
	warned bool // that the eviction is imminent
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	return &Controller{
		Options: o, revoker: quota.NewRevoker(o.Policy, o.Delay, o.Limits), marked: map[types.UID]*mark{},
		refused: flowcontrol.NewBackOff(refusedPause, maxRefusedPause), reported: map[string]string{},
	}
}

// Start revokes until ctx ends. The caches must be synced.
func (c *Controller) Start(ctx context.Context) error {
	if err := c.adopt(); err != nil {
		return err
	}
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			c.pass(ctx, now)
		}
	}
}

func (c *Controller) pass(ctx context.Context, now time.Time) {
	c.refused.GC()
	c.leaving = c.evictAll(ctx, now, c.leaving)
	plans := c.plan(ctx, now)
	for _, p := range plans {
		if c.revoke(ctx, now, p) {
			break
		}
	}
	c.report(now, plans)
	c.mark(ctx, now, plans)
}

// revoke evicts the first unit of a plan if it is due, marked, and within the limits.
func (c *Controller) revoke(ctx context.Context, now time.Time, p plan) bool {
	if c.DryRun || len(p.units) == 0 || now.Before(p.due) {
		return false
	}
	for _, pod := range p.units[0] {
		if m := c.marked[pod.UID]; m == nil || now.Before(m.due) {
			return false
		}
	}
	if !c.revoker.Admit(now, p.donor.Name, len(p.units[0])) {
		return false
	}
	left := c.evictAll(ctx, now, p.units[0])
	outcome := "evicted"
	if len(left) == len(p.units[0]) {
		outcome = "the eviction was refused"
	} else {
		c.leaving = append(c.leaving, left...)
	}
	for _, pod := range p.units[0] {
		c.event(pod, nil, event.QuotaRevoked, "Evict", "%s: %s", outcome, p.text)
	}
	klog.FromContext(ctx).Info("Quota revoked", "donor", p.donor.Name, "claimant", p.claimant, "levels", p.levels,
		"pod", klog.KObj(p.units[0][0]), "pods", len(p.units[0]), "outcome", outcome)
	c.record(p.donor, p.units[0][0], event.QuotaRevocation, outcome+" "+names(p.units[0])+": "+p.text)
	return true
}

// evictAll evicts pods and returns those that are still to go.
func (c *Controller) evictAll(ctx context.Context, now time.Time, pods []*corev1.Pod) (left []*corev1.Pod) {
	for _, pod := range pods {
		if c.refused.IsInBackOffSinceUpdate(string(pod.UID), now) {
			left = append(left, pod)
			continue
		}
		err := kube.Evict(ctx, c.Client, pod.Namespace, pod.Name, &metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		switch {
		case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err): // it is gone
			c.Evictions.WithLabelValues("evicted").Inc()
			c.refused.DeleteEntry(string(pod.UID))
			continue
		case apierrors.IsTooManyRequests(err):
			c.Evictions.WithLabelValues("refused").Inc()
		case ctx.Err() == nil:
			c.Evictions.WithLabelValues("failed").Inc()
			klog.FromContext(ctx).Error(err, "Pod not evicted", "pod", klog.KObj(pod))
		}
		c.refused.Next(string(pod.UID), now)
		left = append(left, pod)
	}
	return left
}

// report says of which quota nothing can be taken back and why, and, in a dry run, what would be.
func (c *Controller) report(now time.Time, plans []plan) {
	said := map[string]string{}
	for _, p := range plans {
		reason, text := event.QuotaRevocation, p.text
		switch {
		case now.Before(p.due):
			continue
		case len(p.units) == 0 && p.kept != "":
			reason, text = event.OveruseNotRevocable, text+"; "+p.kept
		case c.DryRun && len(p.units) > 0:
			var all []*corev1.Pod
			for _, unit := range p.units {
				all = append(all, unit...)
			}
			text = "would evict " + names(all) + ": " + text
		default:
			continue
		}
		if said[p.donor.Name] = text; c.reported[p.donor.Name] != text {
			c.record(p.donor, nil, reason, text)
		}
	}
	c.reported = said
}

// record sends an Event about a quota that has an object.
func (c *Controller) record(q quota.Spec, related runtime.Object, reason event.Reason, text string) {
	if object := c.Object(q.Group, q.Namespace, q.Name); object != nil {
		c.event(object, related, reason, "Revoke", "%s", text)
	}
}

func (c *Controller) event(about, related runtime.Object, reason event.Reason, action, format string, args ...any) {
	const maxNote = 1024
	text := fmt.Sprintf(format, args...)
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote-len("…")], "") + "…"
	}
	c.Events.Eventf(about, related, reason.Type(), reason.String(), action, "%s", text)
}

// names lists pods while they are few.
func names(pods []*corev1.Pod) string {
	const few = 8
	var out []string
	for _, pod := range pods[:min(few, len(pods))] {
		out = append(out, pod.Namespace+"/"+pod.Name)
	}
	text := strings.Join(out, ", ")
	if more := len(pods) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "no pod")
}
