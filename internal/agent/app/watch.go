package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/report"
)

// podInformer watches the pods of the node and nothing else.
func (a *Agent) podInformer() cache.SharedIndexInformer {
	pods := a.o.Client.CoreV1().Pods(metav1.NamespaceAll)
	only := fields.OneTermEqualSelector("spec.nodeName", a.o.Node).String()
	return a.informer(a.o.Client, &corev1.Pod{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return pods.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return pods.Watch(ctx, o)
		})
}

func (a *Agent) nodeInformer() cache.SharedIndexInformer {
	nodes := a.o.Client.CoreV1().Nodes()
	only := named(a.o.Node)
	return a.informer(a.o.Client, &corev1.Node{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return nodes.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return nodes.Watch(ctx, o)
		})
}

func (a *Agent) topologyInformer(gv schema.GroupVersion) cache.SharedIndexInformer {
	topologies := a.o.Dynamic.Resource(gv.WithResource("noderesourcetopologies"))
	only := named(a.o.Node)
	return a.informer(a.o.Dynamic, &unstructured.Unstructured{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return topologies.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return topologies.Watch(ctx, o)
		})
}

func named(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// informer watches the objects of list and watch, and notes whether the API server answers them.
func (a *Agent) informer(
	client any, example runtime.Object, list cache.ListWithContextFunc, watches cache.WatchFuncWithContext,
) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			found, err := list(ctx, o)
			a.api.note(err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := watches(ctx, o)
			a.api.note(err)
			return w, err
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), example, 0,
		cache.Indexers{})
}

// handle registers callbacks; forget gets the object's last known state. An object that was deleted and made anew under
// its name while nothing was watched arrives as an update: the old one is forgotten first.
func handle[T metav1.Object](inf cache.SharedIndexInformer, keep,
	forget func(T),
) (cache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
}

// versionRetry is the time between two looks for the CustomResourceDefinition.
const versionRetry = 5 * time.Second

// ErrOutdated is returned by Run when the API has come to serve v1alpha2 of its object: a write of v1alpha1 would take
// the attributes of other programs away. The agent has to start anew.
var ErrOutdated = errors.New("topology.node.k8s.io/v1alpha2 is served now")

// olderObjects writes v1alpha1, as long as nothing else is served.
type olderObjects struct {
	report.Objects
	discover func() (schema.GroupVersion, error)
	outdated chan<- struct{} // holds one token once v1alpha2 is served
}

// Apply implements report.Objects.
func (o olderObjects) Apply(ctx context.Context, name string, object *unstructured.Unstructured,
	options metav1.ApplyOptions, subresources ...string,
) (*unstructured.Unstructured, error) {
	served, err := o.discover()
	if err != nil {
		return nil, err
	}
	if served == v1alpha2.GroupVersion() {
		select {
		case o.outdated <- struct{}{}:
		default:
		}
		return nil, ErrOutdated
	}
	return o.Objects.Apply(ctx, name, object, options, subresources...)
}

// servedVersion returns the version of topology.node.k8s.io to use: v1alpha2 where it is served, else v1alpha1. It
// waits while neither is.
func (a *Agent) servedVersion(ctx context.Context) (schema.GroupVersion, error) {
	s := a.o.Shared
	for {
		s.mu.Lock()
		known := s.version
		s.mu.Unlock()
		if !known.Empty() {
			return known, nil
		}
		found, err := a.discoverVersion()
		a.api.note(err)
		if err == nil && !found.Empty() {
			if found == v1alpha2.GroupVersion() { // it stays, v1alpha1 may not
				s.mu.Lock()
				s.version = found
				s.mu.Unlock()
			}
			return found, nil
		}
		klog.FromContext(ctx).Info("The API does not serve NodeResourceTopology yet, will look again", "node", a.o.Node,
			"err", err)
		select {
		case <-a.o.Clock.After(versionRetry):
		case <-ctx.Done():
			return schema.GroupVersion{}, ctx.Err()
		}
	}
}

func (a *Agent) discoverVersion() (schema.GroupVersion, error) {
	for _, gv := range []schema.GroupVersion{v1alpha2.GroupVersion(), v1alpha1.GroupVersion()} {
		list, err := a.o.Client.Discovery().ServerResourcesForGroupVersion(gv.String())
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return schema.GroupVersion{}, fmt.Errorf("discover %s: %w", gv, err)
		}
		for _, r := range list.APIResources {
			if r.Name == "noderesourcetopologies" {
				return gv, nil
			}
		}
	}
	return schema.GroupVersion{}, nil
}
