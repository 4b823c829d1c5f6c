package watched

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
)

// lookupPause is how often a kind is looked for whose lookup failed.
const lookupPause = 10 * time.Second

// lookup finds how kinds of owners that are not in the table can be read.
type lookup struct {
	discovery discovery.DiscoveryInterface
	reader    rest.Interface
	off       bool // no kind is looked up: each is unknown

	mu    sync.Mutex // guards known
	known map[schema.GroupVersionKind]*found
	wake  chan struct{} // gets a value when a kind is asked for the first time
}

// found is what is known of a kind.
type found struct {
	scaled bool   // it has the scale subresource, and its objects are followed
	fault  string // why that is not known, or its objects are not; empty if both are
}

// find reports whether a kind has the scale subresource. A kind that is asked for the first time is looked up later.
func (l *lookup) find(kind schema.GroupVersionKind) (scaled bool, fault string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.known[kind]
	if l.off {
		return false, ""
	}
	if f == nil {
		f = &found{fault: "kind " + kind.GroupKind().String() + " is not looked up yet"}
		l.known[kind] = f
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return f.scaled, f.fault
}

func (l *lookup) set(kind schema.GroupVersionKind, f found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[kind] = &f
}

// pending returns the kinds of which nothing is known yet.
func (l *lookup) pending() (kinds []schema.GroupVersionKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, f := range l.known {
		if f.fault != "" && !f.scaled {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// resource returns the resource of a kind, and whether it has the scale subresource.
func (l *lookup) resource(kind schema.GroupVersionKind) (name string, scaled bool, err error) {
	all, err := l.discovery.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return "", false, fmt.Errorf("look up kind %s: %w", kind.GroupKind(), err)
	}
	i := slices.IndexFunc(all.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == kind.Kind && !strings.Contains(r.Name, "/")
	})
	if i < 0 {
		return "", false, fmt.Errorf("look up kind %s: the API server does not have it", kind.GroupKind())
	}
	name = all.APIResources[i].Name
	return name, slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool {
		return r.Name == name+"/scale"
	}), nil
}

// followUnknown looks up kinds that pods have as owners, and follows the objects of those with the scale subresource,
// until ctx ends.
func (c *Cluster) followUnknown(ctx context.Context, run func(func())) {
	for {
		for _, kind := range c.lookup.pending() {
			c.followKind(ctx, kind, run)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.lookup.wake:
		case <-time.After(lookupPause):
		}
	}
}

func (c *Cluster) followKind(ctx context.Context, kind schema.GroupVersionKind, run func(func())) {
	defer c.lock(func() {
		for namespace := range c.pods {
			c.changed[namespace] = true
		}
	})
	name, scaled, err := c.lookup.resource(kind)
	switch {
	case err != nil:
		c.lookup.set(kind, found{fault: err.Error()})
		return
	case !scaled:
		c.lookup.set(kind, found{})
		return
	}
	i := kube.NewObjectInformer(c.lookup.reader, kind.GroupVersion().WithResource(name), kind.Kind, keepOwner)
	registration, err := kube.ByUID(i).AddEventHandler(kube.Handler(c.PutOwner, c.RemoveOwner))
	if err != nil {
		c.lookup.set(kind, found{fault: err.Error()})
		return
	}
	c.lookup.set(kind, found{scaled: true, fault: "the cache of " + kind.GroupKind().String() + " is not synced"})
	run(func() { i.RunWithContext(ctx) })
	run(func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			c.lookup.set(kind, found{scaled: true})
			c.lock(func() {
				for namespace := range c.pods {
					c.changed[namespace] = true
				}
			})
		}
	})
}
