package hooks

import (
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
)

// changesKept is the length of the log. A ranking that is further behind starts anew.
const changesKept = 1 << 13

// Changes is the log of nodes whose NodeInfo, account or nominated pods changed. All methods may be called from any
// goroutine.
type Changes struct {
	mu sync.Mutex // guards everything below
	// log is a ring of node names.
	log  [changesKept]string
	next uint64 // entries ever written; entry i is log[i%changesKept]
	sets uint64 // how often a node came or went

	// What the snapshot in use contains. Invariant: a change that is not in the snapshot is not before seen.
	seen, seenSets uint64
}

// Node logs a node that has changed. The change itself must be visible before the call. A node that is the last in the
// log already is not logged again before the next snapshot: several accounts report the node of one pod.
func (c *Changes) Node(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next > c.seen && c.log[(c.next-1)%changesKept] == name {
		return
	}
	c.log[c.next%changesKept] = name
	c.next++
}

// Shown logs a node that has changed in the snapshot in use.
func (c *Changes) Shown(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := c.next; i > c.seen; i-- { // behind come the changes that the snapshot does not have
		c.log[i%changesKept] = c.log[(i-1)%changesKept]
	}
	c.log[c.seen%changesKept] = name
	c.seen++
	c.next++
}

// nodeSet logs a node that came or went.
func (c *Changes) nodeSet(name string) {
	c.Node(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets++
}

// snapshot records that all changes so far are in the snapshot that is taken next.
func (c *Changes) snapshot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.seenSets = c.next, c.sets
}

// Position returns the position in the log, and how often a node came or went, up to the snapshot in use.
func (c *Changes) Position() (seen, sets uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen, c.seenSets
}

// Since returns the names logged from position from up to the snapshot; false when some have left the log.
func (c *Changes) Since(from uint64) (names []string, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next-from > changesKept {
		return nil, false
	}
	for i := from; i < c.seen; i++ {
		names = append(names, c.log[i%changesKept])
	}
	return names, true
}

// watched is the scheduler's cache with a log of what changed in it. Each event reaches the accounts first, then the
// cache and the log, and only then wakes pods.
type watched struct {
	schedulercache.Cache
	changes *Changes

	mu sync.Mutex // guards the fields below
	// touched are the nodes that the cache has changed since the last snapshot. A snapshot counts anew how many nodes
	// have an image for these nodes alone: images is how often nodes have got or lost images, counted what it was at
	// the last count for a node, by name.
	touched map[string]bool
	images  uint64
	counted map[string]uint64
}

// Watch returns the cache that logs the nodes which change in it, or in the accounts of store.
func (c *Changes) Watch(inner schedulercache.Cache, store *kube.Store) schedulercache.Cache {
	store.OnChange(c.Node)
	return &watched{Cache: inner, changes: c, touched: map[string]bool{}, counted: map[string]uint64{}}
}

// change takes a node that the cache has changed, and logs it unless it weighs as before.
func (w *watched) change(name string, isAlike bool) {
	w.mu.Lock()
	w.touched[name] = true
	w.mu.Unlock()
	if !isAlike {
		w.changes.Node(name)
	}
}

// changeNode takes what images a node has before and after a change; nil stands for a node that does not exist.
func (w *watched) changeNode(old, node *corev1.Node) {
	var before, after []corev1.ContainerImage
	if old != nil {
		before = old.Status.Images
	}
	if node != nil {
		after = node.Status.Images
	}
	if !reflect.DeepEqual(before, after) {
		w.mu.Lock()
		w.images++
		w.mu.Unlock()
	}
}

// AssumePod logs the node after the cache has the pod.
func (w *watched) AssumePod(logger klog.Logger, pod *corev1.Pod) error {
	defer w.change(pod.Spec.NodeName, false)
	return w.Cache.AssumePod(logger, pod)
}

// ForgetPod logs the node after the cache has forgotten the pod.
func (w *watched) ForgetPod(logger klog.Logger, pod *corev1.Pod) error {
	defer w.change(pod.Spec.NodeName, false)
	return w.Cache.ForgetPod(logger, pod)
}

// RemoveAssumedPod logs the node after the cache has forgotten the pod, which was deleted.
func (w *watched) RemoveAssumedPod(logger klog.Logger, pod *corev1.Pod) error {
	defer w.change(pod.Spec.NodeName, false)
	return w.Cache.RemoveAssumedPod(logger, pod)
}

// AddPod logs nothing when it confirms an assumed pod: the node was logged then.
func (w *watched) AddPod(logger klog.Logger, pod *corev1.Pod) error {
	was, notFound := w.GetPod(pod)
	err := w.Cache.AddPod(logger, pod)
	w.change(pod.Spec.NodeName, notFound == nil && weighsAlike(was, pod))
	if notFound == nil && was.Spec.NodeName != pod.Spec.NodeName {
		w.change(was.Spec.NodeName, false)
	}
	return err
}

// UpdatePod logs the node, unless the pod weighs as before.
func (w *watched) UpdatePod(logger klog.Logger, old, pod *corev1.Pod) error {
	err := w.Cache.UpdatePod(logger, old, pod)
	w.change(pod.Spec.NodeName, weighsAlike(old, pod))
	return err
}

// RemovePod logs the node after the cache has forgotten the pod.
func (w *watched) RemovePod(logger klog.Logger, pod *corev1.Pod) error {
	defer w.change(pod.Spec.NodeName, false)
	return w.Cache.RemovePod(logger, pod)
}

// AddNode logs that the set of nodes is another one.
func (w *watched) AddNode(logger klog.Logger, node *corev1.Node) {
	w.changeNode(nil, node)
	defer w.changes.nodeSet(node.Name)
	w.Cache.AddNode(logger, node)
}

// UpdateNode logs the node after the cache has its new state.
func (w *watched) UpdateNode(logger klog.Logger, old, node *corev1.Node) {
	w.changeNode(old, node)
	defer w.change(node.Name, false)
	w.Cache.UpdateNode(logger, old, node)
}

// RemoveNode logs that the set of nodes is another one.
func (w *watched) RemoveNode(logger klog.Logger, node *corev1.Node) error {
	w.changeNode(node, nil)
	defer w.changes.nodeSet(node.Name)
	return w.Cache.RemoveNode(logger, node)
}

// UpdateSnapshot logs nodes whose scores for images a new snapshot changes, and marks what the snapshot contains. A
// change that comes meanwhile may be in the snapshot and counts as if it were not: its node is only looked at twice.
func (w *watched) UpdateSnapshot(logger klog.Logger, snapshot *schedulercache.Snapshot) error {
	w.mu.Lock()
	for name := range w.touched {
		if w.counted[name] != w.images {
			w.counted[name] = w.images
			w.changes.Node(name)
		}
	}
	clear(w.touched)
	w.mu.Unlock()
	w.changes.snapshot()
	return w.Cache.UpdateSnapshot(logger, snapshot)
}

// weighsAlike reports whether two states of a pod on a node are the same to the pods after it: its requests, its
// labels, and whether it is being deleted. The evaluation of a node reads nothing else that can change.
func weighsAlike(a, b *corev1.Pod) bool {
	return a.Spec.NodeName == b.Spec.NodeName && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		maps.Equal(a.Labels, b.Labels) && len(a.Spec.ResourceClaims)+len(b.Spec.ResourceClaims) == 0 &&
		reflect.DeepEqual((&framework.PodInfo{Pod: a}).CalculateResource(),
			(&framework.PodInfo{Pod: b}).CalculateResource())
}
