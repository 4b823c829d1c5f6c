package app_test

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

// gate is a client whose API comes to serve groups while a test runs.
type gate struct {
	kubernetes.Interface

	mu     sync.Mutex // guards closed
	closed map[string]bool
}

// behind puts the API of a world behind a gate on which some versions of groups are closed.
func (w *world) behind(closed ...schema.GroupVersion) *gate {
	g := &gate{Interface: w.client, closed: map[string]bool{}}
	for _, gv := range closed {
		g.closed[gv.String()] = true
	}
	w.options.Client = g
	return g
}

func (g *gate) open(gv schema.GroupVersion) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.closed, gv.String())
}

func (g *gate) Discovery() discovery.DiscoveryInterfaces {
	return gatedDiscovery{g.Interface.Discovery(), g}
}

type gatedDiscovery struct {
	discovery.DiscoveryInterfaces
	gate *gate
}

func (d gatedDiscovery) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	d.gate.mu.Lock()
	closed := d.gate.closed[gv]
	d.gate.mu.Unlock()
	if closed {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: gv}, "")
	}
	return d.DiscoveryInterfaces.ServerResourcesForGroupVersion(gv)
}

// IsWatchListSemanticsUnSupported makes informers list before they watch, as they do with the fake client itself.
func (g *gate) IsWatchListSemanticsUnSupported() bool { return true }
