package app

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube"
)

// feeding is the scheduler's cache with the accounts in front: each event reaches them first, then the cache, and only
// then wakes pods.
type feeding struct {
	schedulercache.Cache
	store *kube.Store
}

func (c *feeding) AddPod(logger klog.Logger, pod *corev1.Pod) error {
	c.store.PutPod(pod)
	return c.Cache.AddPod(logger, pod)
}

func (c *feeding) UpdatePod(logger klog.Logger, old, pod *corev1.Pod) error {
	c.store.PutPod(pod)
	return c.Cache.UpdatePod(logger, old, pod)
}

func (c *feeding) RemovePod(logger klog.Logger, pod *corev1.Pod) error {
	c.store.RemovePod(pod)
	return c.Cache.RemovePod(logger, pod)
}

func (c *feeding) AddNode(logger klog.Logger, node *corev1.Node) *framework.NodeInfo {
	c.store.PutNode(node)
	return c.Cache.AddNode(logger, node)
}

func (c *feeding) UpdateNode(logger klog.Logger, old, node *corev1.Node) *framework.NodeInfo {
	c.store.PutNode(node)
	return c.Cache.UpdateNode(logger, old, node)
}

func (c *feeding) RemoveNode(logger klog.Logger, node *corev1.Node) error {
	c.store.RemoveNode(node.Name)
	return c.Cache.RemoveNode(logger, node)
}

// resources serves NodeResourceTopology from one trimmed cache, with the accounts in front, and every other resource
// from upstream's factory.
type resources struct {
	dynamicinformer.DynamicSharedInformerFactory
	topologies cache.SharedIndexInformer
	asked      bool // a profile has our plugin; without, topologies are not even read
	done       chan struct{}
}

func (r *resources) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	if gvr == v1alpha2.Resource() {
		r.asked = true
		return topologyInformer{r.topologies}
	}
	return r.DynamicSharedInformerFactory.ForResource(gvr)
}

func (r *resources) Start(stop <-chan struct{}) {
	r.DynamicSharedInformerFactory.Start(stop)
	if !r.asked {
		close(r.done)
		return
	}
	go func() {
		defer close(r.done)
		r.topologies.Run(stop)
	}()
}

func (r *resources) WaitForCacheSync(stop <-chan struct{}) map[schema.GroupVersionResource]bool {
	synced := r.DynamicSharedInformerFactory.WaitForCacheSync(stop)
	if synced == nil {
		synced = map[schema.GroupVersionResource]bool{}
	}
	if r.asked {
		synced[v1alpha2.Resource()] = cache.WaitForCacheSync(stop, r.topologies.HasSynced)
	}
	return synced
}

func (r *resources) Shutdown() {
	r.DynamicSharedInformerFactory.Shutdown()
	<-r.done
}

type topologyInformer struct{ informer cache.SharedIndexInformer }

func (t topologyInformer) Informer() cache.SharedIndexInformer { return t.informer }

func (t topologyInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(t.informer.GetIndexer(), v1alpha2.Resource().GroupResource())
}
