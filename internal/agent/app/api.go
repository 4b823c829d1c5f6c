package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// apiOptions are what an apiServer needs.
type apiOptions struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// node is the Node's name.
	node string
	// schedulers are those whose pods may use Tenon; nil for all.
	schedulers *convert.Schedulers
	status     *status.Reporter
	metrics    *status.Metrics
	clock      clock.PassiveClock
}

// apiServer is the API server as the agent of one node uses it: it follows the Node, the pods of the node and the
// objects of the node's name, and notes for how long the API server does not answer. It is safe for concurrent use.
type apiServer struct {
	o apiOptions

	mu          sync.Mutex // guards the fields below; never held across a call out
	from, until time.Time  // the outage of now, as far as it was reported; zero while the server answers

	// outdated holds one token once the API serves a newer version of the object than the agent writes.
	outdated chan struct{}
}

// newAPI returns an apiServer that has not been asked anything yet.
func newAPI(o apiOptions) *apiServer { return &apiServer{o: o, outdated: make(chan struct{}, 1)} }

// serveRetry is the time between two looks for a CustomResourceDefinition.
const serveRetry = 5 * time.Second

// topologyVersion returns the version of topology.node.k8s.io to use: v1alpha2 where it is served, else v1alpha1. It
// waits while neither is.
func (a *apiServer) topologyVersion(ctx context.Context) (version schema.GroupVersion, err error) {
	err = a.poll(ctx, "NodeResourceTopology", func() (found bool, err error) {
		version, err = a.discover()
		return !version.Empty(), err
	})
	return version, err
}

func (a *apiServer) discover() (schema.GroupVersion, error) {
	for _, gv := range []schema.GroupVersion{v1alpha2.GroupVersion(), v1alpha1.GroupVersion()} {
		if found, err := a.serves(gv.WithResource("noderesourcetopologies")); err != nil || found {
			return gv, err
		}
	}
	return schema.GroupVersion{}, nil
}

// waitServed returns once the API serves a resource; the error of ctx when that ends before.
func (a *apiServer) waitServed(ctx context.Context, resource schema.GroupVersionResource) error {
	return a.poll(ctx, resource.Resource, func() (bool, error) { return a.serves(resource) })
}

func (a *apiServer) serves(resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	list, err := a.o.client.Discovery().ServerResourcesForGroupVersion(gv.String())
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
func (a *apiServer) poll(ctx context.Context, kind string, look func() (found bool, err error)) error {
	logged := false
	return wait.PollUntilContextCancel(ctx, serveRetry, true, func(context.Context) (bool, error) {
		found, err := look()
		a.note(err)
		if (err != nil || !found) && !logged {
			logged = true
			klog.FromContext(ctx).Info("The API does not serve what the agent publishes, will look again", "kind", kind,
				"node", a.o.node, "err", err)
		}
		return err == nil && found, nil
	})
}

// minOutage is the shortest outage of the API server that is reported as an Event: a shorter one is the end of a watch.
const minOutage = 10 * time.Second

// note takes the outcome of a request.
func (a *apiServer) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller did not wait for an answer
	}
	now, away := a.o.clock.Now(), !answered(err)
	a.mu.Lock()
	from, more := a.from, time.Duration(0)
	switch {
	case away && from.IsZero():
		a.from, a.until = now, now
	case away:
		more, a.until = now.Sub(a.until), now
	case !from.IsZero():
		more, a.from = now.Sub(a.until), time.Time{}
	}
	a.mu.Unlock()
	if more > 0 {
		a.o.metrics.Unreachable.Add(more.Seconds())
	}
	if !away && !from.IsZero() && now.Sub(from) >= minOutage {
		a.o.status.Outage(from, now)
	}
}

// answered reports whether an error is the API server's own word; one that cannot serve has not answered.
func answered(err error) bool {
	var word apierrors.APIStatus
	return err == nil || errors.As(err, &word) && word.Status().Code < http.StatusInternalServerError
}

// ErrOutdated ends an agent when the API has come to serve v1alpha2 of its object: a write of v1alpha1 would take the
// attributes of other programs away. The agent has to start anew.
var ErrOutdated = errors.New("topology.node.k8s.io/v1alpha2 is served now")

// topologies returns the API of NodeResourceTopology in a version. Writes of v1alpha1 fail once v1alpha2 is served.
func (a *apiServer) topologies(version schema.GroupVersion) dynamic.ResourceInterface {
	objects := a.o.dynamic.Resource(version.WithResource("noderesourcetopologies"))
	if version == v1alpha2.GroupVersion() {
		return objects
	}
	return olderObjects{objects, a}
}

// waitOutdated waits until a write has found that v1alpha2 is served, and returns ErrOutdated; nil when ctx ends
// before.
func (a *apiServer) waitOutdated(ctx context.Context) error {
	select {
	case <-a.outdated:
		return ErrOutdated
	case <-ctx.Done():
		return nil
	}
}

// olderObjects writes v1alpha1, as long as nothing else is served.
type olderObjects struct {
	dynamic.ResourceInterface
	api *apiServer
}

// Apply implements dynamic.ResourceInterface.
func (o olderObjects) Apply(ctx context.Context, name string, object *unstructured.Unstructured,
	options metav1.ApplyOptions, subresources ...string,
) (*unstructured.Unstructured, error) {
	served, err := o.api.discover()
	if err != nil {
		return nil, err
	}
	if served == v1alpha2.GroupVersion() {
		select {
		case o.api.outdated <- struct{}{}:
		default:
		}
		return nil, ErrOutdated
	}
	return o.ResourceInterface.Apply(ctx, name, object, options, subresources...)
}
