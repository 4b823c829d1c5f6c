package gangstatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// collect is how long changes of a gang are collected before a write.
	collect = time.Second
	// writesPerSecond bounds the writes of all.
	writesPerSecond = 20
	// ByGang is the index of pods by their gang.
	ByGang = "gang"
)

// Options are what a controller reads and writes.
type Options struct {
	// Groups are informers of PodGroups, Pods of all pods, ended ones too, indexed by IndexPods.
	Groups []cache.SharedIndexInformer
	Pods   cache.SharedIndexInformer
	Client dynamic.Interface
	Events events.EventRecorder
	Writes *prometheus.CounterVec // by outcome: written or failed
}

// Controller writes. One at a time may run: the leader's.
type Controller struct {
	Options
	queue workqueue.TypedRateLimitingInterface[string] // namespace/name
	// whole are the groups of the API that have the status of an object in the object, bare those whose status has no
	// conditions, as the CRD of another installation.
	whole, bare map[string]bool
	// memory is of PodGroups of each informer, by its index, and by namespace/name. Those without an entry have none.
	memory []map[string]memory
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	c := &Controller{Options: o, whole: map[string]bool{}, bare: map[string]bool{}}
	for range o.Groups {
		c.memory = append(c.memory, map[string]memory{})
	}
	return c
}

// IndexPods indexes pods by their gang.
func IndexPods() cache.Indexers {
	return cache.Indexers{ByGang: func(object any) ([]string, error) {
		if p, ok := object.(*corev1.Pod); ok {
			if own, member := convert.GangPod(p); member {
				return []string{own.Gang}, nil
			}
		}
		return nil, nil
	}}
}

// Trim keeps of a pod that has ended what a controller reads.
func Trim(p *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp,
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	if _, member := convert.GangPod(p); member {
		slim.Labels, slim.Annotations, slim.OwnerReferences = p.Labels, p.Annotations, p.OwnerReferences
		slim.Spec.NodeName, slim.Spec.SchedulingGroup = p.Spec.NodeName, p.Spec.SchedulingGroup
	}
	return slim
}

// Start writes until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second))
	defer c.queue.ShutDown()
	pod := kube.Handler(c.enqueuePod, c.enqueuePod)
	group := kube.Handler(c.enqueueGroup, c.enqueueGroup)
	follow := func(i cache.SharedIndexInformer, h cache.ResourceEventHandler) (stop func(), err error) {
		registration, err := i.AddEventHandler(h)
		if err != nil {
			return nil, fmt.Errorf("follow PodGroups and their pods: %w", err)
		}
		return func() { _ = i.RemoveEventHandler(registration) }, nil
	}
	stop, err := follow(c.Pods, withOld(pod))
	if err != nil {
		return err
	}
	defer stop()
	for _, i := range c.Groups {
		if stop, err = follow(i, group); err != nil {
			return err
		}
		defer stop()
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond)
	kube.Work(ctx, c.queue, "PodGroup status not written", func(ctx context.Context, id string) (time.Duration, error) {
		return 0, c.update(ctx, id, limit)
	})
	return nil
}

// withOld shows a handler what an update replaces too: a pod may have left its gang.
func withOld(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { h.OnAdd(object, false) },
		UpdateFunc: func(old, object any) {
			h.OnAdd(old, false)
			h.OnAdd(object, false)
		},
		DeleteFunc: h.OnDelete,
	}
}

func (c *Controller) enqueuePod(p *corev1.Pod) {
	if own, member := convert.GangPod(p); member {
		c.queue.AddAfter(own.Gang, collect)
	}
}

func (c *Controller) enqueueGroup(g *v1alpha1.PodGroup) {
	c.queue.AddAfter(g.Namespace+"/"+g.Name, collect)
}

// update takes a step for the PodGroups of a gang.
func (c *Controller) update(ctx context.Context, id string, limit flowcontrol.RateLimiter) error {
	var failed []error
	for i, groups := range c.Groups {
		object, _, err := groups.GetStore().GetByKey(id)
		if g, ok := object.(*v1alpha1.PodGroup); !ok || g.Basic {
			delete(c.memory[i], id)
		} else if err == nil {
			err = c.step(ctx, g, c.memory[i], limit)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// step writes the status of a PodGroup where it has changed, and sends the Event that follows.
func (c *Controller) step(ctx context.Context, g *v1alpha1.PodGroup, memories map[string]memory,
	limit flowcontrol.RateLimiter,
) error {
	id, group, now := g.Namespace+"/"+g.Name, g.GroupVersionKind().Group, time.Now()
	was := progressOf(g, memories[id])
	next, do := gang.Step(was, worldOf(g, c.podsOf(id), now))
	status := statusOf(g, was, next, now)
	if c.bare[group] {
		status.Conditions = nil
	}
	if do.Again > 0 {
		c.queue.AddAfter(id, do.Again)
	}
	if !apiequality.Semantic.DeepEqual(status, g.Status) {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		if written, err := c.write(ctx, g, status); err != nil || !written {
			return err
		}
	}
	if memories[id] = remember(group, next); memories[id] == (memory{}) {
		delete(memories, id)
	}
	c.report(g, next, do)
	return nil
}

func (c *Controller) podsOf(id string) (pods []*corev1.Pod) {
	objects, err := c.Pods.GetIndexer().ByIndex(ByGang, id)
	if err != nil {
		panic(fmt.Sprintf("gangstatus: informer without index: %v", err))
	}
	for _, o := range objects {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

// write changes the status of the version that it was compared with, and nothing else of it. written is false where
// that version is gone: another event comes.
func (c *Controller) write(ctx context.Context, g *v1alpha1.PodGroup, stored v1alpha1.PodGroupStatus) (
	written bool, err error,
) {
	group := g.GroupVersionKind().Group
	fields, err := patchOf(stored, group)
	if err != nil {
		return false, err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": g.ResourceVersion, "uid": g.UID}, "status": fields,
	})
	if err != nil {
		return false, err
	}
	resource := g.GroupVersionKind().GroupVersion().WithResource("podgroups")
	patch := func(subresources ...string) (*unstructured.Unstructured, error) {
		return c.Client.Resource(resource).Namespace(g.Namespace).Patch(ctx, g.Name,
			types.MergePatchType, body, metav1.PatchOptions{FieldManager: "tenon-manager"}, subresources...)
	}
	var got *unstructured.Unstructured
	if !c.whole[group] {
		got, err = patch("status")
		c.whole[group] = apierrors.IsNotFound(err) && group != v1alpha1.NativeGroupName
	}
	if c.whole[group] {
		if got, err = patch(); err == nil {
			phase, _, _ := unstructured.NestedString(got.Object, "status", "phase")
			if c.whole[group] = phase == string(stored.Phase); !c.whole[group] {
				err = errors.New("the API has the status apart") // an object that was gone looked like one without
			}
		}
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		c.Writes.WithLabelValues("failed").Inc()
		return false, fmt.Errorf("write PodGroup %s/%s: %w", g.Namespace, g.Name, err)
	}
	c.Writes.WithLabelValues("written").Inc()
	_, has, _ := unstructured.NestedFieldNoCopy(got.Object, "status", "conditions")
	c.bare[group] = c.bare[group] || len(stored.Conditions) > 0 && !has
	return true, nil
}

// report sends the Event of a step.
func (c *Controller) report(g *v1alpha1.PodGroup, p gang.Progress, do gang.Actions) {
	send := func(e event.Reason, format string, args ...any) {
		c.Events.Eventf(g, nil, e.Type(), e.String(), "Scheduling", format, args...)
	}
	switch do.Notice {
	case gang.NoNotice:
	case gang.NoticeStarted:
		send(event.GangScheduled, "the minimum of pods is on nodes; %d run", p.Running)
	case gang.NoticeShrunk:
		send(event.GangDegraded, "fewer pods than the minimum are left on nodes; %d run", p.Running)
	case gang.NoticePartial:
		send(event.GangDegraded, "only %d of %d pods are on nodes", do.Placed, do.Least)
	}
}

// patchOf returns a status as a merge patch in which what is empty is removed.
func patchOf(status v1alpha1.PodGroupStatus, group string) (patch map[string]any, err error) {
	patch = map[string]any{
		"occupiedBy": nil, "scheduled": nil, "running": nil, "succeeded": nil, "failed": nil, "conditions": nil,
	}
	if group == v1alpha1.NativeGroupName {
		status.Phase, patch = "", map[string]any{"conditions": nil}
	}
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return patch, json.Unmarshal(text, &patch)
}
