package app

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
)

// publishNumatopology waits until the API serves Numatopologies, then keeps the node's until ctx ends.
func (a *Agent) publishNumatopology(ctx context.Context) error {
	if !a.waitForNumatopologies(ctx) || !cache.WaitForCacheSync(ctx.Done(), a.pods.HasSynced, a.nodes.HasSynced) {
		return nil
	}
	inf := a.numatopologyInformer()
	if _, err := handle(inf, a.volcano.Observe,
		func(*unstructured.Unstructured) { a.volcano.Observe(nil) }); err != nil {
		return err
	}
	watched := make(chan struct{})
	go func() { defer close(watched); inf.RunWithContext(ctx) }()
	defer func() { <-watched }()
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		return nil
	}
	if len(inf.GetStore().ListKeys()) == 0 {
		a.volcano.Observe(nil)
	}
	return a.volcano.Run(ctx)
}

// waitForNumatopologies returns when the API serves Numatopologies; false when ctx ended before.
func (a *Agent) waitForNumatopologies(ctx context.Context) bool {
	for logged := false; ; logged = true {
		err := a.servesNumatopologies()
		if err == nil {
			return true
		}
		if !logged {
			klog.FromContext(ctx).Info("The API does not serve Numatopology, will look again", "node", a.o.Node, "err",
				err)
		}
		select {
		case <-a.o.Clock.After(versionRetry):
		case <-ctx.Done():
			return false
		}
	}
}

func (a *Agent) servesNumatopologies() error {
	list, err := a.o.Client.Discovery().ServerResourcesForGroupVersion(nodeinfo.GroupVersion().String())
	if err != nil {
		return fmt.Errorf("discover %s: %w", nodeinfo.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if r.Name == nodeinfo.Resource().Resource {
			return nil
		}
	}
	return apierrors.NewNotFound(nodeinfo.Resource().GroupResource(), "")
}

func (a *Agent) numatopologyInformer() cache.SharedIndexInformer {
	objects := a.o.Dynamic.Resource(nodeinfo.Resource())
	only := named(a.o.Node)
	return a.informer(a.o.Dynamic, &unstructured.Unstructured{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return objects.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return objects.Watch(ctx, o)
		})
}
