package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// Cache is kube-scheduler's cache of nodes and their pods.
type Cache = schedulercache.Cache

// Copy is a snapshot of a cache beside that of the scheduling loop. It has no node before the first Update.
type Copy struct {
	*schedulercache.Snapshot
	cache Cache
}

// NewCopy returns a snapshot of a cache.
func NewCopy(c Cache) *Copy { return &Copy{schedulercache.NewEmptySnapshot(), c} }

// Update takes over the nodes as the cache has them now. Only the nodes that have changed cost something. It must not
// run while another goroutine reads the snapshot.
func (c *Copy) Update(logger klog.Logger) error { return c.cache.UpdateSnapshot(logger, c.Snapshot) }

// IsPlaced reports whether the cache has a pod on a node now, where its Binding may be under way.
func (c *Copy) IsPlaced(pod *corev1.Pod) bool {
	_, err := c.cache.GetPod(pod)
	return err == nil
}
