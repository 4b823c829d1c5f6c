package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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

// NewClient returns a client that lists and watches resources as JSON.
func NewClient(config *rest.Config) (rest.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.AcceptContentTypes, config.GroupVersion, config.APIPath = runtime.ContentTypeJSON, nil, "/"
	return rest.UnversionedRESTClientFor(config)
}

// pages lists a resource page by page, so that each object can be trimmed before the next page is read, and returns the
// version of the last one. T has what is read of an object: a tree of everything else would cost three times as much.
func pages[T any](ctx context.Context, c rest.Interface, r schema.GroupVersionResource, options metav1.ListOptions,
	each func(*T),
) (version string, err error) {
	// Pages need a consistent read: resource version "0" would come whole from the server's cache.
	options.Limit, options.ResourceVersion, options.ResourceVersionMatch = topologyPage, "", ""
	for {
		answer := c.Get().AbsPath("/apis", r.Group, r.Version, r.Resource).
			SpecificallyVersionedParams(&options, scheme.ParameterCodec, corev1.SchemeGroupVersion).Do(ctx)
		if err := answer.Error(); err != nil {
			return "", err
		}
		text, err := answer.Raw()
		if err != nil {
			return "", err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return "", fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if options.Continue = page.Metadata.Continue; options.Continue == "" {
			return page.Metadata.ResourceVersion, nil
		}
	}
}
