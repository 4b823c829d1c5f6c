package grouping

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// refusalTime is how long a kind is not read that the API server does not have, or does not let be read.
const refusalTime = time.Minute

// Owners reads the objects above pods. It follows a kind from the first read that succeeds, until Start ends. All
// methods may be called from any goroutine.
type Owners struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	pod    func(namespace, name string) *corev1.Pod // nil for one that is not known
	now    func() time.Time

	mu       sync.Mutex      // guards everything below
	running  context.Context // between the begin of Start and the end of its ctx
	follow   sync.WaitGroup
	kinds    map[schema.GroupVersionKind]*kind
	onChange func(workload.Link) // nil before the controller starts
}

// kind is one that was read, or could not be read.
type kind struct {
	resource schema.GroupVersionResource
	informer cache.SharedIndexInformer // nil before the first read that succeeds
	refusal  error
	until    time.Time // of the refusal
}

// NewOwners returns one that reads with a client. pod returns a pod that is known.
func NewOwners(client dynamic.Interface, mapper meta.RESTMapper, pod func(namespace, name string) *corev1.Pod,
	now func() time.Time,
) *Owners {
	return &Owners{client: client, mapper: mapper, pod: pod, now: now, kinds: map[schema.GroupVersionKind]*kind{}}
}

// Start follows kinds until ctx ends.
func (o *Owners) Start(ctx context.Context) error {
	o.mu.Lock()
	o.running = ctx
	for _, k := range o.kinds {
		o.run(k)
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.running = nil // no other kind is followed from now on
	o.mu.Unlock()
	o.follow.Wait()
	return nil
}

// NeedLeaderElection is false: every replica answers webhooks.
func (*Owners) NeedLeaderElection() bool { return false }

// OnChange calls f with each object of a followed kind that changes, and at first with each that there is.
func (o *Owners) OnChange(f func(workload.Link)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onChange = f
	for _, k := range o.kinds {
		if k.informer != nil {
			for _, object := range k.informer.GetStore().List() {
				f(linkOf(object.(*unstructured.Unstructured)))
			}
		}
	}
}

func (o *Owners) changed(object *unstructured.Unstructured) {
	o.mu.Lock()
	f := o.onChange
	o.mu.Unlock()
	if f != nil {
		f(linkOf(object))
	}
}

func linkOf(u *unstructured.Unstructured) workload.Link {
	return convert.WorkloadLink(u.GetAPIVersion(), u.GetKind(), u)
}

// Read returns an object and its content, from a cache, or where that has another one or none, from the API server.
func (o *Owners) Read(ctx context.Context, want workload.Link) (workload.Link, map[string]any, error) {
	if want.Group == "" && want.Kind == "Pod" {
		if p := o.pod(want.Namespace, want.Name); p != nil && string(p.UID) == want.UID {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
			return convert.WorkloadLink("v1", "Pod", p), content, err
		}
		return o.ReadNow(ctx, want)
	}
	if u := o.cached(want); u != nil && string(u.GetUID()) == want.UID {
		return linkOf(u), u.Object, nil
	}
	return o.ReadNow(ctx, want)
}

func (o *Owners) cached(want workload.Link) *unstructured.Unstructured {
	o.mu.Lock()
	k := o.kinds[kindOf(want)]
	o.mu.Unlock()
	if k == nil || k.informer == nil {
		return nil
	}
	return kube.Get[unstructured.Unstructured](k.informer, want.Namespace+"/"+want.Name)
}

// ReadNow is Read without a cache.
func (o *Owners) ReadNow(ctx context.Context, want workload.Link) (workload.Link, map[string]any, error) {
	resource, err := o.resourceOf(want)
	if err != nil {
		return workload.Link{}, nil, err
	}
	u, err := o.client.Resource(resource).Namespace(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return workload.Link{}, nil, workload.ErrNotFound
	case apierrors.IsForbidden(err):
		o.refuse(want, err)
		return workload.Link{}, nil, err
	case err != nil:
		return workload.Link{}, nil, err
	}
	o.followKind(want)
	return linkOf(u), u.Object, nil
}

// JobOf returns the Job that controls a pod; nil for a pod of none, and where the Job cannot be read in time.
func (o *Owners) JobOf(ctx context.Context, pod *corev1.Pod) *batchv1.Job {
	owner := convert.WorkloadLink("v1", "Pod", pod).Owner
	if owner == nil || owner.Group != batchv1.GroupName || owner.Kind != "Job" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, admissionTime)
	defer cancel()
	want := *owner
	want.Namespace = pod.Namespace
	found, content, err := o.Read(ctx, want)
	job := &batchv1.Job{}
	if err != nil || found.UID != want.UID ||
		runtime.DefaultUnstructuredConverter.FromUnstructured(content, job) != nil {
		return nil
	}
	return job
}

func kindOf(l workload.Link) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: l.Group, Version: l.Version, Kind: l.Kind}
}

// resourceOf returns the resource of a kind, or why it cannot be read.
func (o *Owners) resourceOf(want workload.Link) (schema.GroupVersionResource, error) {
	at := kindOf(want)
	o.mu.Lock()
	known := o.kinds[at]
	o.mu.Unlock()
	switch {
	case known == nil:
	case known.refusal == nil:
		return known.resource, nil
	case o.now().Before(known.until):
		return schema.GroupVersionResource{}, known.refusal
	}
	mapping, err := o.mapper.RESTMapping(at.GroupKind(), at.Version)
	if err != nil {
		err = fmt.Errorf("find kind %s: %w", at.Kind, err)
		o.refuse(want, err)
		return schema.GroupVersionResource{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.kinds[at]; k == nil || k.informer == nil {
		o.kinds[at] = &kind{resource: mapping.Resource}
	}
	return mapping.Resource, nil
}

// refuse keeps why a kind is not read for a while. A kind that is followed remains so.
func (o *Owners) refuse(want workload.Link, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.kinds[kindOf(want)]; k == nil || k.informer == nil {
		o.kinds[kindOf(want)] = &kind{refusal: err, until: o.now().Add(refusalTime)}
	}
}

// followKind begins to follow a kind, but for pods: they are known.
func (o *Owners) followKind(want workload.Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.kinds[kindOf(want)]
	if k == nil || k.informer != nil || want.Group == "" && want.Kind == "Pod" {
		return
	}
	k.informer = dynamicinformer.NewFilteredDynamicInformer(o.client, k.resource, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	_ = k.informer.SetTransform(kube.WithoutManagedFields) // fails only for one that runs
	_, _ = k.informer.AddEventHandler(kube.Handler(o.changed, o.changed))
	o.run(k)
}

// run runs the informer of a kind, once Start was called.
func (o *Owners) run(k *kind) {
	if ctx := o.running; ctx != nil && k.informer != nil && ctx.Err() == nil {
		o.follow.Go(func() { k.informer.RunWithContext(ctx) })
	}
}
