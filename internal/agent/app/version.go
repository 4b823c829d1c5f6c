package app

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

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
