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
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// collect is how long changes of a gang are collected before a write.
	collect = time.Second
	// writesPerSecond bounds the writes of all.
	writesPerSecond = 20
	// byGang is the index of pods.
	byGang = "gang"
)

// Options are what a controller reads and writes.
type Options struct {
	// Groups are informers of PodGroups, Pods of all their pods, ended ones too, indexed by IndexPods.
	Groups, Pods []cache.SharedIndexInformer
	Client       dynamic.Interface
	Events       events.EventRecorder
	Writes       *prometheus.CounterVec // by outcome: written or failed
}

// Controller writes. One at a time may run: the leader's.
type Controller struct {
	Options
	queue workqueue.TypedRateLimitingInterface[string] // namespace/name
	// whole are the groups of the API that have the status of an object in the object.
	whole map[string]bool
}

// New returns a controller that does not run.
func New(o Options) *Controller { return &Controller{Options: o, whole: map[string]bool{}} }

// IndexPods indexes pods by their gang.
func IndexPods() cache.Indexers {
	return cache.Indexers{byGang: func(object any) ([]string, error) {
		if p, ok := object.(*corev1.Pod); ok {
			if is, member := convert.GangPod(p); member {
				return []string{is.Gang}, nil
			}
		}
		return nil, nil
	}}
}

// Trim keeps of a pod what a controller reads.
func Trim(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, Labels: p.Labels, Annotations: p.Annotations,
			OwnerReferences: p.OwnerReferences,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, SchedulingGroup: p.Spec.SchedulingGroup},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}, nil
}

// Start writes until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second))
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	defer c.queue.ShutDown()
	pod := kube.Handler(c.enqueuePod, c.enqueuePod)
	group := kube.Handler(c.enqueueGroup, c.enqueueGroup)
	for _, followed := range []struct {
		informers []cache.SharedIndexInformer
		handler   cache.ResourceEventHandler
	}{{c.Pods, withOld(pod)}, {c.Groups, group}} {
		for _, i := range followed.informers {
			registration, err := i.AddEventHandler(followed.handler)
			if err != nil {
				return fmt.Errorf("follow PodGroups: %w", err)
			}
			defer func() { _ = i.RemoveEventHandler(registration) }()
		}
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond)
	for {
		id, ends := c.queue.Get()
		if ends {
			return nil
		}
		if err := c.update(ctx, id, limit); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "PodGroup status not written", "podGroup", id)
			c.queue.AddRateLimited(id)
		} else {
			c.queue.Forget(id)
		}
		c.queue.Done(id)
	}
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
	if is, member := convert.GangPod(p); member {
		c.queue.AddAfter(is.Gang, collect)
	}
}

func (c *Controller) enqueueGroup(g *v1alpha1.PodGroup) {
	c.queue.AddAfter(g.Namespace+"/"+g.Name, collect)
}

// update writes the status of the PodGroups of a gang where it has changed.
func (c *Controller) update(ctx context.Context, id string, limit flowcontrol.RateLimiter) error {
	var failed []error
	for _, i := range c.Groups {
		object, _, err := i.GetStore().GetByKey(id)
		if g, ok := object.(*v1alpha1.PodGroup); ok && err == nil {
			is := statusOf(g, c.podsOf(id), metav1.Now())
			if apiequality.Semantic.DeepEqual(is, g.Status) {
				continue
			}
			if err = limit.Wait(ctx); err == nil {
				err = c.write(ctx, g, is)
			}
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (c *Controller) podsOf(id string) (pods []*corev1.Pod) {
	known := map[types.UID]bool{} // a pod may have the labels of both groups
	for _, i := range c.Pods {
		objects, err := i.GetIndexer().ByIndex(byGang, id)
		if err != nil {
			panic(fmt.Sprintf("gangstatus: informer without index: %v", err))
		}
		for _, o := range objects {
			if p := o.(*corev1.Pod); !known[p.UID] {
				known[p.UID] = true
				pods = append(pods, p)
			}
		}
	}
	return pods
}

// write changes the status of the version that it was compared with, and nothing else of it.
func (c *Controller) write(ctx context.Context, g *v1alpha1.PodGroup, is v1alpha1.PodGroupStatus) error {
	status, err := patchOf(is)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": g.ResourceVersion, "uid": g.UID}, "status": status,
	})
	if err != nil {
		return err
	}
	group := g.GroupVersionKind().Group
	patch := func(subresources ...string) (*unstructured.Unstructured, error) {
		return c.Client.Resource(v1alpha1.PodGroupResource(group)).Namespace(g.Namespace).Patch(ctx, g.Name,
			types.MergePatchType, body, metav1.PatchOptions{FieldManager: "tenon-manager"}, subresources...)
	}
	if !c.whole[group] {
		_, err = patch("status")
		c.whole[group] = apierrors.IsNotFound(err)
	}
	if c.whole[group] {
		var got *unstructured.Unstructured
		if got, err = patch(); err == nil {
			phase, _, _ := unstructured.NestedString(got.Object, "status", "phase")
			if c.whole[group] = phase == string(is.Phase); !c.whole[group] {
				err = errors.New("the API has the status apart") // an object that was gone looked like one without
			}
		}
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // another event comes
		return nil
	case err != nil:
		c.Writes.WithLabelValues("failed").Inc()
		return fmt.Errorf("write PodGroup %s/%s: %w", g.Namespace, g.Name, err)
	}
	c.Writes.WithLabelValues("written").Inc()
	c.report(g, is)
	return nil
}

// report sends an Event when a gang has started, and when fewer pods than its minimum are left of it.
func (c *Controller) report(g *v1alpha1.PodGroup, is v1alpha1.PodGroupStatus) {
	send := func(e event.Reason, format string, args ...any) {
		c.Events.Eventf(g, nil, e.Type(), e.String(), "Scheduling", format, args...)
	}
	was := g.Status.Phase
	switch {
	case is.Phase == v1alpha1.PodGroupUnknown && was != is.Phase:
		send(event.GangDegraded, "fewer pods than the minimum are left on nodes; %d run", is.Running)
	case is.Phase.IsStarted() && !was.IsStarted():
		send(event.GangScheduled, "the minimum of pods is on nodes; %d run", is.Running)
	}
}

// patchOf returns a status as a merge patch in which what is empty is removed.
func patchOf(is v1alpha1.PodGroupStatus) (patch map[string]any, err error) {
	text, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	patch = map[string]any{"occupiedBy": nil, "scheduled": nil, "running": nil, "succeeded": nil, "failed": nil}
	return patch, json.Unmarshal(text, &patch)
}
