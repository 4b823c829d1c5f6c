package scalehelper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/scaleup"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// Namespace is that of the helpers.
	Namespace = "tenon-scale-helper"
	// SchedulerName is that of the helpers. No scheduler serves it.
	SchedulerName = "tenon-scale-helper"

	// interval is the time between two plans, soon that between two looks for pods that no longer need their helpers.
	interval, soon = 30 * time.Second, 200 * time.Millisecond
	// patience is how long a pod must be Unschedulable before it gets a helper.
	patience = 30 * time.Second
	// lifetime is the age at which a helper is deleted, and pause the time from then until its pod may have another
	// one: a new node that the pod does not fit either is followed by at most one an hour.
	lifetime, pause = 15 * time.Minute, 45 * time.Minute
	// maxHelpers and maxExcluded bound helpers in a cluster, and the node names in one of them.
	maxHelpers, maxExcluded = 20, 200
)

// Cluster is what is known of the nodes.
type Cluster interface {
	// Account returns the account of a node with the pods on it.
	Account(node string) *ledger.View
	// Reserved returns what Reservations hold on a node beside the pods that use them; nil for nothing.
	Reserved(node string) amount.List
	// Request returns what a pod asks of a node; nil if no node can take it as it is written.
	Request(pod *corev1.Pod) *place.Request
}

// Options are what a controller works with.
type Options struct {
	Pods, Nodes cache.Store // by namespace and name; of pods that have ended not all fields are needed
	Cluster     Cluster
	Schedulers  *convert.Schedulers // whose pods get helpers
	Client      kubernetes.Interface
	Events      events.EventRecorder
	// Off creates no helpers, and removes the labels that an earlier controller has written.
	Off bool
}

// Controller creates and deletes helpers. One at a time may run: the leader's.
type Controller struct {
	Options
	ended   map[string]time.Time   // by UID of a pod: when its last helper reached its lifetime
	helpers map[string]*corev1.Pod // the helpers of the last plan, by UID of their pods
}

// New returns a controller that does not run.
func New(o Options) *Controller { return &Controller{Options: o, ended: map[string]time.Time{}} }

// Start works until ctx ends. The caches must be synced.
func (c *Controller) Start(ctx context.Context) error {
	if c.Off {
		_ = wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (removed bool, _ error) {
			err := c.label(ctx, nil)
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Labels of scale helpers not removed")
			}
			return err == nil, nil
		})
		return nil
	}
	ticks := time.NewTicker(soon)
	defer ticks.Stop()
	var planned time.Time
	for {
		var err error
		if now := time.Now(); now.Sub(planned) >= interval {
			planned, err = now, c.round(ctx, now)
		} else {
			err = c.dismiss(ctx)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Scale helpers not kept")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// dismiss deletes the helpers whose pods have a node or are gone: the pod has taken the node that was added for its
// helper, and an autoscaler that looks now would add another one. What fails is tried again with the next plan.
func (c *Controller) dismiss(ctx context.Context) error {
	var failed []error
	for uid, h := range c.helpers {
		object, known, _ := c.Pods.GetByKey(h.Annotations[annotation.ScaleHelper])
		if p, isPod := object.(*corev1.Pod); known && isPod && string(p.UID) == uid && p.Spec.NodeName == "" {
			continue
		}
		delete(c.helpers, uid)
		failed = append(failed, c.remove(ctx, h))
	}
	return errors.Join(failed...)
}

// round makes the helpers that the plan wants, and deletes those that it does not want any more.
func (c *Controller) round(ctx context.Context, now time.Time) error {
	pods, waiting, helpers := c.read(now)
	var failed []error
	wanted := c.plan(pods, waiting)
	labelled, err := c.exclude(ctx, wanted)
	if err != nil {
		return err
	}
	have := len(helpers)
	c.helpers = map[string]*corev1.Pod{}
	for _, h := range helpers {
		uid := h.Labels[annotation.ScaleHelper]
		c.helpers[uid] = h
		_, isWanted := wanted[uid]
		delete(wanted, uid)
		switch old := now.Sub(h.CreationTimestamp.Time) >= lifetime; {
		case h.DeletionTimestamp != nil:
		case old || !isWanted:
			if old && isWanted {
				c.ended[uid] = now
			}
			delete(c.helpers, uid)
			failed = append(failed, c.remove(ctx, h))
		case condition(h) == nil: // the manager ended before it had written it
			failed = append(failed, c.mark(ctx, h))
		}
	}
	for _, p := range waiting {
		h, isWanted := wanted[string(p.UID)]
		if isWanted && have < maxHelpers && (c.ended[h.UID].IsZero() || now.Sub(c.ended[h.UID]) >= pause) {
			have++
			failed = append(failed, c.create(ctx, p, h.Excluded, labelled))
		}
	}
	return errors.Join(failed...)
}

// read returns the pods of the cluster that have not ended, those that may need helpers, in the order of a queue, and
// the helpers. It forgets what is known of pods that are gone.
func (c *Controller) read(now time.Time) (pods, waiting, helpers []*corev1.Pod) {
	known := map[string]bool{}
	for _, object := range c.Pods.List() {
		p := object.(*corev1.Pod)
		switch known[string(p.UID)] = true; {
		case p.Namespace == Namespace:
			if p.Labels[annotation.ScaleHelper] != "" {
				helpers = append(helpers, p)
			}
		case convert.Ended(p):
		case p.Spec.NodeName != "":
			pods = append(pods, p)
		case c.Schedulers.Trusts(p) && waits(p, now):
			waiting = append(waiting, p)
		}
	}
	for uid := range c.ended {
		if !known[uid] {
			delete(c.ended, uid)
		}
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		if d := corev1helpers.PodPriority(b) - corev1helpers.PodPriority(a); d != 0 {
			return int(d)
		}
		if d := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); d != 0 {
			return d
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return pods, waiting, helpers
}

func condition(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodScheduled {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// waits reports whether an autoscaler acts for a pod, and has had time to. Pods with rules about other pods, with
// volumes, claims or ports get no helper: their helper would lack the rule that keeps the pod off a node.
func waits(p *corev1.Pod, now time.Time) bool {
	refused := condition(p)
	return refused != nil && refused.Status == corev1.ConditionFalse && refused.Reason == why.Unschedulable &&
		now.Sub(refused.LastTransitionTime.Time) >= patience && p.DeletionTimestamp == nil &&
		p.Status.NominatedNodeName == "" && !depends(p)
}

// depends reports whether what a pod requires of a node is more than amounts, labels and taints, or is another
// program's: a ProvisioningRequest.
func depends(p *corev1.Pod) bool {
	s := &p.Spec
	var rules []corev1.PodAffinityTerm
	if a := s.Affinity; a != nil && a.PodAffinity != nil {
		rules = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if a := s.Affinity; a != nil && a.PodAntiAffinity != nil {
		rules = slices.Concat(rules, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	return len(rules) > 0 || len(s.ResourceClaims) > 0 ||
		p.Annotations[annotation.ConsumeProvisioningRequest] != "" ||
		slices.ContainsFunc(s.TopologySpreadConstraints, func(t corev1.TopologySpreadConstraint) bool {
			return t.WhenUnsatisfiable == corev1.DoNotSchedule
		}) ||
		slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		}) ||
		slices.ContainsFunc(s.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.HostPort != 0 })
		})
}

// plan returns the helpers that waiting pods need, by the UID of the pod.
func (c *Controller) plan(pods, waiting []*corev1.Pod) map[string]scaleup.Helper {
	if len(waiting) == 0 {
		return nil
	}
	nodes, objects := map[string]scaleup.Node{}, []*corev1.Node{}
	for _, object := range c.Nodes.List() {
		n := object.(*corev1.Node)
		objects = append(objects, n)
		nodes[n.Name] = scaleup.Node{
			Free:     convert.Amounts(n.Status.Allocatable),
			Reserved: c.Cluster.Reserved(n.Name),
		}
	}
	slices.SortFunc(objects, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range pods {
		if n, known := nodes[p.Spec.NodeName]; known {
			n.Free.Take(amounts(p))
		}
	}
	var asked []scaleup.Pod
	for _, p := range waiting {
		request := c.Cluster.Request(p)
		if request == nil {
			continue
		}
		pod := scaleup.Pod{Request: request, Amounts: amounts(p)}
		required := nodeaffinity.GetRequiredNodeAffinity(p)
		for _, n := range objects {
			_, tainted := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints,
				p.Spec.Tolerations, func(t *corev1.Taint) bool {
					return t.Effect != corev1.TaintEffectPreferNoSchedule
				}, false)
			if matches, err := required.Match(n); err == nil && matches && !tainted && !n.Spec.Unschedulable {
				pod.Nodes = append(pod.Nodes, n.Name)
			}
		}
		asked = append(asked, pod)
	}
	limits := scaleup.Limits{Helpers: maxHelpers, Excluded: maxExcluded}
	wanted := map[string]scaleup.Helper{}
	for _, h := range scaleup.Plan(asked, nodes, c.Cluster.Account, limits) {
		wanted[h.UID] = h
	}
	return wanted
}

// amounts returns what a pod requests, itself included.
func amounts(p *corev1.Pod) amount.List {
	all := amount.List{string(corev1.ResourcePods): 1}
	all.Add(convert.PodAmounts(p))
	return all
}

// exclude labels the nodes that helpers exclude, where Karpenter reads the label: it ignores pods that name hosts. The
// cluster autoscaler copies labels of nodes to those that it plans, but not the one of the host name. A helper may
// exclude the nodes of all helpers: it does not fit those that it does not exclude.
func (c *Controller) exclude(ctx context.Context, wanted map[string]scaleup.Helper) (labelled bool, err error) {
	excluded := map[string]bool{}
	if len(wanted) > 0 {
		_, err := c.Client.Discovery().ServerResourcesForGroupVersion("karpenter.sh/v1")
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("ask for Karpenter's kinds: %w", err)
		}
		labelled = err == nil
	}
	if labelled {
		for _, h := range wanted {
			for _, node := range h.Excluded {
				excluded[node] = true
			}
		}
	}
	return labelled, c.label(ctx, excluded)
}

// label gives the label of helpers to the excluded nodes, and takes it from the others.
func (c *Controller) label(ctx context.Context, excluded map[string]bool) error {
	var failed []error
	for _, object := range c.Nodes.List() {
		n := object.(*corev1.Node)
		_, has := n.Labels[annotation.ScaleHelper]
		if has == excluded[n.Name] {
			continue
		}
		var value any // null deletes
		if !has {
			value = "excluded"
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"labels": map[string]any{annotation.ScaleHelper: value},
		}})
		if err == nil {
			_, err = c.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, text, metav1.PatchOptions{})
		}
		if err := ignoreGone(err); err != nil {
			failed = append(failed, fmt.Errorf("label node %s: %w", n.Name, err))
		}
	}
	return errors.Join(failed...)
}

// create creates the helper of a pod. The nodes that it excludes are labelled where Karpenter reads it.
func (c *Controller) create(ctx context.Context, p *corev1.Pod, excluded []string, labelled bool) error {
	elsewhere := corev1.NodeSelectorRequirement{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: c.hostNames(excluded),
	}
	if labelled {
		elsewhere = corev1.NodeSelectorRequirement{
			Key: annotation.ScaleHelper, Operator: corev1.NodeSelectorOpDoesNotExist,
		}
	}
	h, err := c.Client.CoreV1().Pods(Namespace).Create(ctx, newHelper(p, elsewhere), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // the cache lags
		return nil
	}
	if err != nil {
		return fmt.Errorf("create a scale helper for %s/%s: %w", p.Namespace, p.Name, err)
	}
	c.Events.Eventf(p, nil, event.ScaleHelperCreated.Type(), event.ScaleHelperCreated.String(), "ScalingUp",
		"%d nodes have the amounts, but not for this pod: pod %s/%s asks cluster autoscalers for a new node",
		len(excluded), Namespace, h.Name)
	c.helpers[string(p.UID)] = h
	return c.mark(ctx, h)
}

// hostNames returns the values of the label by which nodes are excluded.
func (c *Controller) hostNames(nodes []string) (names []string) {
	for _, name := range nodes {
		if n, known, _ := c.Nodes.GetByKey(name); known {
			if host := n.(*corev1.Node).Labels[corev1.LabelHostname]; host != "" {
				names = append(names, host)
			}
		}
	}
	return names
}

// mark writes the condition for which autoscalers act.
func (c *Controller) mark(ctx context.Context, h *corev1.Pod) error {
	text, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: why.Unschedulable,
		LastTransitionTime: metav1.Now(),
		Message: "stands for pod " + h.Annotations[annotation.ScaleHelper] +
			", which fits existing nodes by amounts alone",
	}}}})
	if err == nil {
		_, err = c.Client.CoreV1().Pods(Namespace).Patch(ctx, h.Name, types.StrategicMergePatchType, text,
			metav1.PatchOptions{}, "status")
	}
	return ignoreGone(err)
}

func (c *Controller) remove(ctx context.Context, h *corev1.Pod) error {
	return ignoreGone(c.Client.CoreV1().Pods(Namespace).Delete(ctx, h.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(h.UID)),
	}))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
