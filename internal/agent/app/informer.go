package app

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube/convert"
)

// pods follows the pods of the node and nothing else. They are cached as convert.Pod, without what the agent does not
// read.
func (a *apiServer) pods() (cache.SharedIndexInformer, error) {
	onNode := fields.OneTermEqualSelector("spec.nodeName", a.o.node)
	inf := informer(a, a.o.client, a.o.client.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, onNode)
	return inf, inf.SetTransform(trimmer(a.o.schedulers))
}

// node follows the Node.
func (a *apiServer) node() cache.SharedIndexInformer {
	return informer(a, a.o.client, a.o.client.CoreV1().Nodes(), &corev1.Node{}, a.named())
}

// object follows the object of a resource that has the node's name.
func (a *apiServer) object(resource schema.GroupVersionResource) cache.SharedIndexInformer {
	return informer(a, a.o.dynamic, a.o.dynamic.Resource(resource), &unstructured.Unstructured{}, a.named())
}

func (a *apiServer) named() fields.Selector {
	return fields.OneTermEqualSelector("metadata.name", a.o.node)
}

// lister is the API of one kind of object.
type lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// informer follows selected objects, and notes whether the API server answers.
func informer[L runtime.Object](
	a *apiServer, client any, objects lister[L], example runtime.Object, only fields.Selector,
) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only.String()
			found, err := objects.List(ctx, o)
			a.note(err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only.String()
			w, err := objects.Watch(ctx, o)
			a.note(err)
			return w, err
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), example, 0,
		cache.Indexers{})
}

// handle registers callbacks; forget gets the object's last known state. An object that was deleted and made anew under
// its name while nothing was watched arrives as an update: the old one is forgotten first.
func handle[T metav1.Object](inf cache.SharedIndexInformer, keep, forget func(T)) error {
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { keep(obj.(T)) },
		UpdateFunc: func(old, obj any) {
			if last := old.(T); last.GetUID() != obj.(T).GetUID() {
				forget(last)
			}
			keep(obj.(T))
		},
		DeleteFunc: func(obj any) {
			if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tomb.Obj
			}
			if last, ok := obj.(T); ok {
				forget(last)
			}
		},
	})
	return err
}

// trimmer returns a function that drops, before a pod is cached, the fields that the agent does not read: most of it,
// where pods have sidecars and long environments. Pods of schedulers that are not trusted also lose the labels and
// annotations of Tenon. The function returns a convert.Pod.
func trimmer(schedulers *convert.Schedulers) cache.TransformFunc {
	return func(obj any) (any, error) {
		if pod, ok := obj.(*corev1.Pod); ok {
			return convert.ReadPod(schedulers.Trusted(trim(pod))), nil
		}
		return obj, nil
	}
}

func trim(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	pod.OwnerReferences = slices.DeleteFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind != "DaemonSet"
	})
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation) // the object once more
	s := &pod.Spec
	*s = corev1.PodSpec{
		NodeName: s.NodeName, Priority: s.Priority, PriorityClassName: s.PriorityClassName,
		SchedulerName: s.SchedulerName,
		Overhead:      s.Overhead, Resources: s.Resources, RestartPolicy: s.RestartPolicy, HostNetwork: s.HostNetwork,
		ResourceClaims:      s.ResourceClaims,
		InitContainers:      trimContainers(s.InitContainers),
		Containers:          trimContainers(s.Containers),
		EphemeralContainers: s.EphemeralContainers,
	}
	for i := range s.EphemeralContainers {
		c := &s.EphemeralContainers[i].EphemeralContainerCommon
		*c = corev1.EphemeralContainerCommon{Name: c.Name, Resources: c.Resources}
	}
	return pod
}

func trimContainers(all []corev1.Container) []corev1.Container {
	for i := range all {
		c := &all[i]
		*c = corev1.Container{
			Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy,
			RestartPolicy: c.RestartPolicy,
		}
	}
	return all
}
