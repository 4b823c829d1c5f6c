package kube

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// absence is whether the last list found that the server lacks a resource. Reflectors list and watch in turn, never at
// once.
type absence struct {
	absent bool
	// rested says, with absent, that a watch has waited absentPause since the list, so that the next one ends.
	rested bool
}

// watch watches a resource that the server lacks: it is silent for absentPause, then orders a new list. It returns nil
// without an error for a resource that the server has.
func (a *absence) watch() (watch.Interface, error) {
	switch {
	case !a.absent:
		return nil, nil
	case a.rested:
		return nil, apierrors.NewResourceExpired("the resource may have been installed")
	}
	a.rested = true
	w := watch.NewFake()
	time.AfterFunc(absentPause, w.Stop)
	return w, nil
}

// typed is a typed client of a resource, whose lists are L.
type typed[L any] interface {
	List(context.Context, metav1.ListOptions) (*L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// optional lists and watches a resource of Kubernetes which some of its releases lack.
type optional[L any] struct {
	absence
	client typed[L]
	at     schema.GroupVersionResource
	server discovery.ServerResourcesInterface
	said   sync.Once // that the server lacks the resource
}

// NewOptionalInformer returns an informer of a resource of Kubernetes which some of its releases lack. A server without
// the resource looks like one without objects until it is upgraded.
func NewOptionalInformer[L any](server discovery.ServerResourcesInterface, at schema.GroupVersionResource,
	client typed[L], object runtime.Object,
) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&optional[L]{client: client, at: at, server: server}, object, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// IsWatchListSemanticsUnSupported lets reflectors list, which finds a missing resource.
func (*optional[L]) IsWatchListSemanticsUnSupported() bool { return true }

func (o *optional[L]) List(options metav1.ListOptions) (runtime.Object, error) {
	return o.ListWithContext(context.Background(), options)
}

func (o *optional[L]) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return o.WatchWithContext(context.Background(), options)
}

// ListWithContext returns all objects.
func (o *optional[L]) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	all, err := o.client.List(ctx, options)
	if o.absence = (absence{absent: err != nil && o.lacks(err)}); o.absent {
		o.said.Do(func() {
			klog.FromContext(ctx).Info("The API server lacks a resource, which counts as empty", "resource", o.at)
		})
		all, err = new(L), nil
	}
	object, _ := any(all).(runtime.Object) // lists of typed clients are objects
	return object, err
}

// lacks reports whether a list failed because the server lacks the resource. A role of a release that lacks it often
// does not have the right either, and the right is checked first.
func (o *optional[L]) lacks(err error) bool {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return false
	}
	all, err := o.server.ServerResourcesForGroupVersion(o.at.GroupVersion().String())
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return !slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == o.at.Resource })
}

// WatchWithContext watches from where a list ended.
func (o *optional[L]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if w, err := o.watch(); w != nil || err != nil {
		return w, err
	}
	return o.client.Watch(ctx, options)
}
