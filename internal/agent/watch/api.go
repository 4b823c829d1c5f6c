package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// Options are what an API needs.
type Options struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Node is the Node's name.
	Node string
	// Lost is called with the seconds that an outage of the API server lasted since the last call, Back with an outage
	// that is over.
	Lost  func(seconds float64)
	Back  func(from, to time.Time)
	Clock clock.PassiveClock
}

// API is the API server as the agent of one node sees it. It is safe for concurrent use.
type API struct {
	o Options

	mu          sync.Mutex // guards the fields below; never held across a call out
	from, until time.Time  // the outage of now, as far as it was reported; zero while the server answers

	// outdated holds one token once the API serves a newer version of the object than the agent writes.
	outdated chan struct{}
}

// New returns an API that was not asked anything yet.
func New(o Options) *API { return &API{o: o, outdated: make(chan struct{}, 1)} }

// serveRetry is the time between two looks for a CustomResourceDefinition.
const serveRetry = 5 * time.Second

// TopologyVersion returns the version of topology.node.k8s.io to use: v1alpha2 where it is served, else v1alpha1. It
// waits while neither is.
func (a *API) TopologyVersion(ctx context.Context) (version schema.GroupVersion, err error) {
	err = a.poll(ctx, "NodeResourceTopology", func() (found bool, err error) {
		version, err = a.discover()
		return !version.Empty(), err
	})
	return version, err
}

func (a *API) discover() (schema.GroupVersion, error) {
	for _, gv := range []schema.GroupVersion{v1alpha2.GroupVersion(), v1alpha1.GroupVersion()} {
		if found, err := a.serves(gv.WithResource("noderesourcetopologies")); err != nil || found {
			return gv, err
		}
	}
	return schema.GroupVersion{}, nil
}

// WaitServed returns once the API serves a resource; the error of ctx when that ends before.
func (a *API) WaitServed(ctx context.Context, resource schema.GroupVersionResource) error {
	return a.poll(ctx, resource.Resource, func() (bool, error) { return a.serves(resource) })
}

func (a *API) serves(resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	list, err := a.o.Client.Discovery().ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("discover %s: %w", gv, err)
	}
	named := func(r metav1.APIResource) bool { return r.Name == resource.Resource }
	return slices.ContainsFunc(list.APIResources, named), nil
}

// poll looks until something is found.
func (a *API) poll(ctx context.Context, kind string, look func() (found bool, err error)) error {
	logged := false
	return wait.PollUntilContextCancel(ctx, serveRetry, true, func(context.Context) (bool, error) {
		found, err := look()
		a.note(err)
		if (err != nil || !found) && !logged {
			logged = true
			klog.FromContext(ctx).Info("The API does not serve what the agent publishes, will look again", "kind", kind,
				"node", a.o.Node, "err", err)
		}
		return err == nil && found, nil
	})
}
