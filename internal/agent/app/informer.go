package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
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
