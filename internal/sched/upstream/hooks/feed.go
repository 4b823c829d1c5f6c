package hooks

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
)

// Watch returns an informer around another.
type Watch = func(cache.SharedIndexInformer) cache.SharedIndexInformer

// Informers returns a factory with upstream's informers of pods and nodes, whose events the accounts of a table get
// first. The pods include the reserve pods of Reservations. Namesakes are kept apart: upstream ends the process over an
// update from a bound pod to its pending namesake. Nodes come without what is reserved on them. watch has each informer
// that the accounts follow, and returns the one in its place; devices does so for those that ResourceClaims need.
func Informers(client kubernetes.Interface, upstream informers.SharedInformerFactory, table accounts.Table,
	watch, devices Watch,
) informers.SharedInformerFactory {
	core := upstream.Core().V1()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	serve := func(object runtime.Object, i cache.SharedIndexInformer) {
		factory.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return i })
	}
	serve(&corev1.Pod{}, IndexedOnce{table.Of("Pod").First(watch(core.Pods().Informer()))})
	serve(&corev1.Node{}, table.Of("Node").First(watch(core.Nodes().Informer())))
	serveDevices(client, serve, table, devices)
	return factory
}

// IndexedOnce is an informer to which an indexer may be added again: the plugins of profiles for questions add those
// that the plugins of the running profile of their name have added.
type IndexedOnce struct{ cache.SharedIndexInformer }

// AddIndexers adds the indexers whose names are not there yet.
func (i IndexedOnce) AddIndexers(indexers cache.Indexers) error {
	more := cache.Indexers{}
	for name, index := range indexers {
		if i.GetIndexer().GetIndexers()[name] == nil {
			more[name] = index
		}
	}
	return i.SharedIndexInformer.AddIndexers(more)
}

// trim leaves out what no part of the scheduler reads.
func trim(object any) (any, error) {
	object, err := kube.WithoutManagedFields(object)
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		out := *o
		out.Spec.Template, object = corev1.PodTemplateSpec{}, &out
	case *appsv1.StatefulSet:
		out := *o
		out.Spec.Template, out.Spec.VolumeClaimTemplates, object = corev1.PodTemplateSpec{}, nil, &out
	case *corev1.ReplicationController:
		out := *o
		out.Spec.Template, object = nil, &out
	}
	return object, err
}

// serveDevices serves the kinds of dynamic resource allocation, which Kubernetes has since 1.34, and taint rules, which
// it has since 1.37.
func serveDevices(client kubernetes.Interface, serve func(runtime.Object, cache.SharedIndexInformer),
	table accounts.Table, watch Watch,
) {
	server, devices, group := client.Discovery(), client.ResourceV1(), resourcev1.SchemeGroupVersion
	claims, slices, classes := &resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}, &resourcev1.DeviceClass{}
	rules := &resourcev1.DeviceTaintRule{}
	serve(claims, table.Of("ResourceClaim").First(watch(kube.NewOptionalInformer(server,
		group.WithResource("resourceclaims"), devices.ResourceClaims(metav1.NamespaceAll), claims))))
	serve(slices, table.Of("ResourceSlice").First(watch(kube.NewOptionalInformer(server,
		group.WithResource("resourceslices"), devices.ResourceSlices(), slices))))
	serve(classes, watch(kube.NewOptionalInformer(server, group.WithResource("deviceclasses"), devices.DeviceClasses(),
		classes)))
	serve(rules, watch(kube.NewOptionalInformer(server, group.WithResource("devicetaintrules"),
		devices.DeviceTaintRules(), rules)))
}

// resources serves the objects of our kinds from trimmed caches, which the accounts read first.
type resources struct {
	dynamicinformer.DynamicSharedInformerFactory
	// ours are the informers that the accounts follow.
	ours map[schema.GroupVersionResource]cache.SharedIndexInformer
	// asked are those of ours that a profile with our plugin has asked for; others are not even read.
	asked map[schema.GroupVersionResource]cache.SharedIndexInformer
	// running counts the informers that run.
	running sync.WaitGroup
}

// Resources returns a factory with the objects of our kinds, which client reads and the accounts of a table get first.
// watch is as for Informers.
func Resources(upstream dynamicinformer.DynamicSharedInformerFactory, table accounts.Table, client rest.Interface,
	watch Watch,
) dynamicinformer.DynamicSharedInformerFactory {
	r := &resources{
		DynamicSharedInformerFactory: upstream,
		ours:                         map[schema.GroupVersionResource]cache.SharedIndexInformer{},
		asked:                        map[schema.GroupVersionResource]cache.SharedIndexInformer{},
	}
	for _, kind := range table {
		for _, s := range kind.Sources {
			r.ours[s.At[0]] = kind.First(watch(s.Informer(client)))
		}
	}
	return r
}

// ForResource returns the informer of one of our objects, and marks it as needed; upstream's for any other.
func (r *resources) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	if i, ok := r.ours[gvr]; ok {
		r.asked[gvr] = i
		return trimmedInformer{i, gvr.GroupResource()}
	}
	return r.DynamicSharedInformerFactory.ForResource(gvr)
}

// Start runs the informers that are needed.
func (r *resources) Start(stop <-chan struct{}) {
	r.DynamicSharedInformerFactory.Start(stop)
	for _, i := range r.asked {
		r.running.Go(func() { i.Run(stop) })
	}
}

// WaitForCacheSync waits until the informers that are needed have all objects.
func (r *resources) WaitForCacheSync(stop <-chan struct{}) map[schema.GroupVersionResource]bool {
	synced := r.DynamicSharedInformerFactory.WaitForCacheSync(stop)
	if synced == nil {
		synced = map[schema.GroupVersionResource]bool{}
	}
	all := make([]cache.DoneChecker, 0, len(r.asked))
	for _, i := range r.asked {
		all = append(all, i.HasSyncedChecker())
	}
	cache.WaitFor(wait.ContextForChannel(stop), "", all...) // does not poll
	for gvr, i := range r.asked {
		synced[gvr] = i.HasSynced()
	}
	return synced
}

// Shutdown waits until all informers have ended.
func (r *resources) Shutdown() {
	r.DynamicSharedInformerFactory.Shutdown()
	r.running.Wait()
}

// trimmedInformer is an informer in the form of a generic one.
type trimmedInformer struct {
	informer cache.SharedIndexInformer
	resource schema.GroupResource
}

// Informer returns the informer.
func (t trimmedInformer) Informer() cache.SharedIndexInformer { return t.informer }

// Lister lists the objects of the informer.
func (t trimmedInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(t.informer.GetIndexer(), t.resource)
}
