package grouping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// again is when an object is looked at once more whose PodGroups the cache does not show yet.
	again = 200 * time.Millisecond
	// byOwner is the index of PodGroups by the UID of the object that they were made for.
	byOwner = "owner"
)

// Options are what a controller reads and writes.
type Options struct {
	*Grouper
	// Pods is an informer of pods. Made is one of the PodGroups of the group that is written, indexed by IndexGroups.
	Pods, Made cache.SharedIndexInformer
	Client     dynamic.Interface
	Events     events.EventRecorder
}

// Controller writes. One at a time may run: the leader's.
type Controller struct {
	Options
	queue workqueue.TypedRateLimitingInterface[item]
	// named are names of PodGroups that pods of an object have and its gangs do not, by its UID. Such a PodGroup must
	// exist while pods name it.
	named map[string]map[string]bool
	said  map[string]string // the last Event about an object, by its UID
}

// item is a pod to be labelled, or an object whose PodGroups are to be written.
type item struct {
	namespace, pod string
	owner          workload.Link // without Owner; the zero value for a pod
}

// IndexGroups indexes PodGroups by the object that they were made for.
func IndexGroups() cache.Indexers {
	return cache.Indexers{byOwner: func(object any) ([]string, error) {
		if o, ok := object.(*v1alpha1.PodGroup); ok {
			if uid := ownerOf(o); uid != "" {
				return []string{uid}, nil
			}
		}
		return nil, nil
	}}
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	return &Controller{Options: o, named: map[string]map[string]bool{}, said: map[string]string{}}
}

// Start writes until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[item](100*time.Millisecond, 30*time.Second))
	defer c.queue.ShutDown()
	for i, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		c.Pods: kube.Handler(c.enqueuePod, c.enqueueLost), c.Made: kube.Handler(c.enqueueGroup, c.enqueueDeleted),
	} {
		registration, err := i.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("follow PodGroups and their pods: %w", err)
		}
		defer func() { _ = i.RemoveEventHandler(registration) }()
	}
	c.Owners.OnChange(c.enqueueOwner)
	defer c.Owners.OnChange(func(workload.Link) {})
	kube.Work(ctx, c.queue, "Gang of an operator's object not written", c.sync)
	return nil
}

// isMarked reports whether a pod has the label by a rule.
func isMarked(p *corev1.Pod) bool {
	return p.Annotations[annotation.GangRule] != "" && p.Labels[annotation.PodGroup] != ""
}

func (c *Controller) enqueuePod(p *corev1.Pod) {
	if !convert.Ended(p) && c.concerns(p) && (isMarked(p) || !convert.NamesGang(p)) {
		c.queue.Add(item{namespace: p.Namespace, pod: p.Name})
	}
}

// enqueueLost looks at the object of a pod that has gone: a PodGroup may be needed no more.
func (c *Controller) enqueueLost(p *corev1.Pod) {
	if !isMarked(p) {
		return
	}
	for _, o := range c.Cluster.PodGroups(p.Namespace, p.Labels[annotation.PodGroup]) {
		c.enqueueGroup(o)
	}
}

func (c *Controller) enqueueGroup(o *v1alpha1.PodGroup) {
	if ownerOf(o) != "" {
		owner := *convert.WorkloadLink("", "", o).Owner
		owner.Namespace = o.Namespace
		c.enqueueOwner(owner)
	}
}

// enqueueDeleted looks at the object of a PodGroup that is gone, and at the pods that name it: without it they wait.
func (c *Controller) enqueueDeleted(o *v1alpha1.PodGroup) {
	for _, p := range c.Cluster.Members(o.Namespace + "/" + o.Name) {
		c.enqueuePod(p)
	}
	c.enqueueGroup(o)
}

func (c *Controller) enqueueOwner(l workload.Link) {
	c.queue.Add(item{namespace: l.Namespace, owner: workload.Link{
		Namespace: l.Namespace, Group: l.Group, Version: l.Version, Kind: l.Kind, Name: l.Name, UID: l.UID,
	}})
}

func (c *Controller) sync(ctx context.Context, i item) (time.Duration, error) {
	if i.pod != "" {
		return 0, c.syncPod(ctx, i.namespace, i.pod)
	}
	return c.syncOwner(ctx, i.owner)
}

// syncPod gives a pod the label that the webhook did not, and looks at the object that it belongs to.
func (c *Controller) syncPod(ctx context.Context, namespace, name string) error {
	p := kube.Get[corev1.Pod](c.Pods, namespace+"/"+name)
	if p == nil || convert.Ended(p) {
		return nil
	}
	d, group, err := c.decide(ctx, p)
	if unread := (*workload.ValueError)(nil); errors.As(err, &unread) {
		c.enqueueOwner(d.Owner) // the Event is about the object
		return nil
	}
	if err != nil {
		if p.Spec.NodeName == "" {
			c.send(p, event.NotGrouped, "%v: the pod is in no gang", err)
		}
		return nil
	}
	if d.Owner.UID == "" {
		return nil
	}
	switch {
	case isMarked(p) && group == p.Labels[annotation.PodGroup]:
	case isMarked(p):
		if c.named[d.Owner.UID] == nil {
			c.named[d.Owner.UID] = map[string]bool{}
		}
		c.named[d.Owner.UID][p.Labels[annotation.PodGroup]] = true
	case group != "":
		if err := c.label(ctx, p, group, d.Plan.Rule); err != nil {
			return err
		}
	}
	c.enqueueOwner(d.Owner)
	return nil
}

// label gives a pod its label late.
func (c *Controller) label(ctx context.Context, p *corev1.Pod, group, rule string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion,
		"labels":      map[string]string{annotation.PodGroup: group},
		"annotations": map[string]string{annotation.GangRule: rule},
	}})
	if err != nil {
		return err
	}
	_, err = c.Client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(p.Namespace).Patch(ctx, p.Name,
		types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // another event comes
	case err != nil:
		return fmt.Errorf("label pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	c.send(p, event.GroupedLate, "in gang %s by rule %s: the webhook did not answer when the pod was created", group,
		rule)
	return nil
}

const fieldManager = "tenon-manager"

// syncOwner writes the PodGroups of an object. Before it makes one smaller or deletes it, it asks the API server: the
// cache may be older than the PodGroup.
func (c *Controller) syncOwner(ctx context.Context, l workload.Link) (time.Duration, error) {
	pause, isCurrent, err := c.reconcile(ctx, l, c.Owners.Read, false)
	if !isCurrent {
		pause, _, err = c.reconcile(ctx, l, c.Owners.ReadNow, true)
	}
	return pause, err
}

type read = func(context.Context, workload.Link) (workload.Link, map[string]any, error)

// reconcile writes the PodGroups of an object as it is read. isCurrent is false where they must be read now instead.
func (c *Controller) reconcile(ctx context.Context, l workload.Link, from read, isNow bool) (
	pause time.Duration, isCurrent bool, err error,
) {
	pod := workload.Link{Namespace: l.Namespace, Kind: "Pod", Version: "v1", Name: "of " + l.String(), Owner: &l}
	contents := map[string]map[string]any{}
	rule, owner, err := c.Table.Match(pod, func(want workload.Link) (workload.Link, error) {
		found, content, err := from(ctx, want)
		contents[found.UID] = content
		return found, err
	})
	object := &unstructured.Unstructured{Object: contents[l.UID]}
	switch {
	case object.Object == nil && err != nil && !errors.Is(err, workload.ErrNotFound):
		return refusalTime, true, nil
	case object.Object == nil: // the PodGroups go with it
		delete(c.named, l.UID)
		delete(c.said, l.UID)
		return 0, true, nil
	case err != nil || rule != nil && owner.UID != l.UID:
		return 0, true, nil //nolint:nilerr // the Events of its pods say so, or they lead to the other object
	}
	var plan workload.Plan
	if rule != nil && rule.Default != workload.Parent && c.allows(l.Namespace) {
		if plan, err = rule.Plan(object.Object, convert.WorkloadTerms(c.Schedulers)); err != nil {
			c.say(object, event.NotGrouped, "%s: the pods are in no gang", err)
			return 0, true, nil
		}
	}
	if plan.Reason != "" {
		c.say(object, event.NotGrouped, "%s: the pods are in no gang", plan.Reason)
	}
	existing := map[string]*v1alpha1.PodGroup{}
	objects, err := c.Made.GetIndexer().ByIndex(byOwner, l.UID)
	if err != nil {
		return 0, true, err
	}
	for _, o := range objects {
		existing[o.(*v1alpha1.PodGroup).Name] = o.(*v1alpha1.PodGroup)
	}
	want, unused := plan.Reconcile(c.names(&l, &plan), c.made(l, existing))
	if !isNow && len(unused)+len(want) > len(plan.Gangs) {
		return 0, false, nil
	}
	pause, err = c.write(ctx, l, object, &plan, existing, want, unused)
	return pause, true, err
}

// write creates, changes and deletes the PodGroups of an object.
func (c *Controller) write(ctx context.Context, l workload.Link, object *unstructured.Unstructured, plan *workload.Plan,
	existing map[string]*v1alpha1.PodGroup, want map[string]workload.Gang, unused []string,
) (time.Duration, error) {
	var err error
	groups := c.Client.Resource(v1alpha1.PodGroupResource(v1alpha1.GroupName)).Namespace(l.Namespace)
	created := false
	for _, name := range slices.Sorted(maps.Keys(want)) {
		gang := want[name]
		wanted := convert.WorkloadGroup(l.Namespace, &gang, ruleOf(plan, existing[name], object), reference(object))
		if was := existing[name]; was != nil {
			err = patchGroup(ctx, groups, was, wanted)
		} else {
			err, created = createGroup(ctx, groups, wanted), true
		}
		switch {
		case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			return again, nil // the cache is behind
		case err != nil:
			return 0, fmt.Errorf("write PodGroup %s/%s: %w", l.Namespace, name, err)
		}
	}
	for _, name := range unused {
		was := existing[name]
		if was == nil {
			delete(c.named[l.UID], name)
			continue
		}
		err := groups.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: &was.UID, ResourceVersion: &was.ResourceVersion,
		}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("delete PodGroup %s/%s: %w", l.Namespace, name, err)
		}
	}
	if created && len(plan.Gangs) > 0 {
		c.say(object, event.Grouped, "%s %s: gangs %s, by rule %s; label %s=off stops it", l.Kind, l.Name,
			plan.Summary(), plan.Rule, annotation.GangLabel)
	}
	return 0, nil
}

// made returns the PodGroups that were made for an object, with those that its pods name.
func (c *Controller) made(l workload.Link, existing map[string]*v1alpha1.PodGroup) map[string]workload.Made {
	made := map[string]workload.Made{}
	for name, o := range existing {
		var m workload.Made
		ids, _, _ := annotation.ParseGangGroups(o.Annotations[annotation.GangGroups])
		for _, id := range ids {
			_, other, _ := cache.SplitMetaNamespaceKey(id)
			m.Joined = append(m.Joined, other)
		}
		made[name] = m
	}
	for name := range c.named[l.UID] {
		if _, exists := made[name]; !exists && len(c.Cluster.PodGroups(l.Namespace, name)) == 0 {
			made[name] = workload.Made{}
		}
	}
	for name, m := range made {
		for _, p := range c.Cluster.Members(l.Namespace + "/" + name) {
			if convert.Ended(p) {
				continue
			}
			if m.Pods++; p.Spec.NodeName != "" {
				m.Placed++
			}
		}
		made[name] = m
	}
	return made
}

// ruleOf returns the rule that a PodGroup names: that of the plan, or for one that no gang needs, what it named before.
func ruleOf(plan *workload.Plan, was *v1alpha1.PodGroup, object *unstructured.Unstructured) string {
	switch {
	case plan.Rule != "":
		return plan.Rule
	case was != nil:
		return was.Annotations[annotation.GangRule]
	}
	return (&workload.Rule{Group: object.GroupVersionKind().Group, Kind: object.GetKind()}).Name()
}

func reference(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: ptr.To(true),
	}
}

func createGroup(ctx context.Context, groups dynamic.ResourceInterface, wanted *v1alpha1.PodGroup) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return err
	}
	delete(content, "status")
	_, err = groups.Create(ctx, &unstructured.Unstructured{Object: content},
		metav1.CreateOptions{FieldManager: fieldManager})
	return err
}

// patchGroup writes what differs of a PodGroup: its size, and the annotations that a rule sets.
func patchGroup(ctx context.Context, groups dynamic.ResourceInterface, was, wanted *v1alpha1.PodGroup) error {
	changed := map[string]any{}
	for _, key := range []string{annotation.GangRule, annotation.GangGroups, annotation.GangMatchPolicy} {
		before, had := was.Annotations[key]
		switch value, has := wanted.Annotations[key]; {
		case !has && had:
			changed[key] = nil
		case has && value != before:
			changed[key] = value
		}
	}
	if len(changed) == 0 && was.Spec.MinMember == wanted.Spec.MinMember {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": was.UID, "resourceVersion": was.ResourceVersion, "annotations": changed,
		},
		"spec": map[string]any{"minMember": wanted.Spec.MinMember},
	})
	if err != nil {
		return err
	}
	_, err = groups.Patch(ctx, was.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

func (c *Controller) send(about runtime.Object, e event.Reason, format string, args ...any) {
	c.Events.Eventf(about, nil, e.Type(), e.String(), "Grouping", format, args...)
}

// say sends an Event about an object unless it was the last one.
func (c *Controller) say(o *unstructured.Unstructured, e event.Reason, format string, args ...any) {
	uid, text := string(o.GetUID()), fmt.Sprintf(format, args...)
	if c.said[uid] != text {
		c.said[uid] = text
		c.send(o, e, "%s", text)
	}
}
