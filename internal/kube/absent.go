package kube

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// absentPause is how often a missing resource is looked for.
const absentPause = 10 * time.Second

// absence remembers that a server does not have a resource, which then looks as if there were no objects.
type absence struct {
	absent atomic.Bool // the last list found no such resource
	rested atomic.Bool // and the watch after it has waited
}

func (a *absence) begin() {
	a.rested.Store(false)
	a.absent.Store(true)
}

func (a *absence) end() { a.absent.Store(false) }

func (a *absence) holds() bool { return a.absent.Load() }

// rest stands in for the watch of the resource: silence for a while, then the order to list again.
func (a *absence) rest() (watch.Interface, error) {
	if a.rested.Swap(true) {
		return nil, apierrors.NewResourceExpired("the resource may have been installed")
	}
	w := watch.NewFake()
	time.AfterFunc(absentPause, w.Stop)
	return w, nil
}

// pages lists a resource page by page, so that each object can be trimmed before the next page is read, and returns the
// version of the last one.
func pages(ctx context.Context, r dynamic.ResourceInterface, options metav1.ListOptions,
	each func(*unstructured.Unstructured),
) (version string, err error) {
	// Pages need a consistent read: resource version "0" would come whole from the server's cache.
	options.Limit, options.ResourceVersion, options.ResourceVersionMatch = topologyPage, "", ""
	for {
		page, err := r.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return page.GetResourceVersion(), nil
		}
	}
}
