package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const firstApplyRetry = time.Second

// follow waits until everything is known, then keeps facts and mode up to date until ctx ends.
func (a *Agent) follow(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), a.pods.HasSynced, a.nodes.HasSynced, a.publisher.Synced) {
		return nil
	}
	if obj, ok, err := a.nodes.GetStore().GetByKey(a.o.Node); ok && err == nil {
		a.keepNode(obj.(*corev1.Node)) // the informer is ahead of its handlers
	}
	if a.lock.Unclean {
		a.status.Restarted(a.lock.Alive)
	}
	a.beginning.Lock()
	a.joined = true
	a.refresh(ctx)
	for _, pod := range a.podList() {
		a.keepPod(pod)
	}
	a.prunePods() // the engine has the complete list of pods: it may write
	a.beginning.Unlock()
	a.publisher.Begin()
	a.enforcer.Engage()
	tick := a.o.Clock.NewTicker(a.o.Resync)
	defer tick.Stop()
	var claims <-chan time.Time // runs while a contradiction is to be looked at again
	for applied := false; ; {
		now := a.o.Clock.Now()
		a.followed.Store(&now)
		var retry <-chan time.Time
		applied = applied || a.applyFirst()
		if left := a.leave(ctx); !applied || !left {
			retry = a.o.Clock.After(firstApplyRetry)
		}
		var again <-chan time.Time
		if wait, wanted := a.kubelet.Wait(); wanted {
			again = a.o.Clock.After(wait)
		}
		select {
		case <-retry:
			continue
		case <-a.claims:
			claims = a.reportClaims()
			continue
		case <-claims:
			claims = a.reportClaims()
			continue
		case <-a.poke:
		case <-again:
		case <-tick.C():
			a.lock.Beat(a.o.Clock.Now())
			a.o.Shared.Metrics.Refused.Add(float64(a.lock.Refused()))
			a.prunePods()
			a.enforcer.Sweep(ctx)
		case <-ctx.Done():
			return nil
		}
		a.refresh(ctx)
		if err := a.misplaced(); err != nil {
			return err
		}
		claims = a.reportClaims()
	}
}

const claimRetry = time.Second

// reportClaims reports what pods' allocations contradict, and returns when to look again; nil when nothing is open.
func (a *Agent) reportClaims() <-chan time.Time {
	if a.status.Claims(a.enforcer.View(), a.livePods()) {
		return nil
	}
	return a.o.Clock.After(claimRetry)
}

func (a *Agent) prunePods() {
	// Not maps.Keys: pods that arrive while the list is made must not be missing in it.
	a.enforcer.Prune(func(yield func(string) bool) { maps.Keys(a.livePods())(yield) })
}

// livePods are the UIDs, as the node knows them, of the pods that the API has and that have not ended.
func (a *Agent) livePods() map[string]bool {
	live := map[string]bool{}
	for _, pod := range a.podList() {
		if !convert.Ended(pod.Pod) {
			live[convert.NodeUID(pod.Pod)] = true
		}
	}
	return live
}

// ErrCgroupRoot is returned by Run when the kubelet keeps its pods below another cgroup than the agent works on. The
// agent must restart to use the right one.
var ErrCgroupRoot = errors.New("the kubelet keeps its pods below another cgroup")

// misplaced returns ErrCgroupRoot when the kubelet's pods are below another cgroup than the agent's.
func (a *Agent) misplaced() error {
	root, said := a.kubelet.CgroupRoot()
	kubelets, used := path.Clean("/"+root), path.Clean("/"+a.o.CgroupRoot)
	if !said || !a.o.guessesRoot || kubelets == used {
		return nil
	}
	return fmt.Errorf("%w: %s, and not %s", ErrCgroupRoot, kubelets, used)
}

// applyFirst brings the tree in order for the first time; false when it has to be tried again.
func (a *Agent) applyFirst() bool {
	err := a.enforcer.First()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied = err
	return err == nil
}

func (a *Agent) keepPod(pod *convert.Pod) {
	if convert.Ended(pod.Pod) {
		a.dropPod(pod)
		return
	}
	defer a.touchPods()
	a.enforcer.Update(desired.FromAPI(pod))
	if a.transports.IsUnasked() {
		a.enforcer.Visit(convert.NodeUID(pod.Pod))
	}
	a.status.Annotations(pod)
}

func (a *Agent) dropPod(pod *convert.Pod) {
	a.enforcer.Delete(convert.NodeUID(pod.Pod))
	a.status.ForgetPod(pod.UID)
	a.touchPods()
}

// keepNode takes what matters of a Node; its heartbeats do not.
func (a *Agent) keepNode(node *corev1.Node) {
	a.mu.Lock()
	same := sameWish(a.node, node)
	replaced := a.node != nil && (node == nil || a.node.UID != node.UID)
	a.node = node
	a.mu.Unlock()
	if node != nil {
		a.setLeaving(annotation.IsLeaving(node.Annotations))
	}
	if replaced {
		a.status.Forget()
	}
	if !same {
		a.touch()
	}
}

func sameWish(a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		a.Status.NodeInfo.KubeletVersion == b.Status.NodeInfo.KubeletVersion &&
		a.Status.NodeInfo.BootID == b.Status.NodeInfo.BootID &&
		a.Status.DaemonEndpoints == b.Status.DaemonEndpoints && slices.Equal(a.Status.Addresses, b.Status.Addresses) &&
		slices.Equal(exhausted(a, nil), exhausted(b, nil))
}

func (a *Agent) currentNode() *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}

// touch asks for a refresh, and for a look at what is published.
func (a *Agent) touch() {
	select {
	case a.poke <- struct{}{}:
	default:
	}
	a.publish()
}

// touchPods is touch for a change of pods. They change the facts only where the kubelet gives some of them something.
func (a *Agent) touchPods() {
	a.holders()
	select {
	case a.claims <- struct{}{}:
	default:
	}
	if a.kubelet.RecordsPods() {
		a.kubelet.Want()
		a.touch()
		return
	}
	a.publish()
}
