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

// follow waits until the objects of the node are known, then keeps facts and mode up to date until ctx ends.
func (a *Agent) follow(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), a.pods.HasSynced, a.nodes.HasSynced, a.publisher.Synced) {
		return nil
	}
	if obj, ok, err := a.nodes.GetStore().GetByKey(a.o.Node); ok && err == nil {
		a.updateNode(obj.(*corev1.Node)) // the informer is ahead of its handlers
	}
	if a.lock.Unclean {
		a.status.Restarted(a.lock.Alive)
	}
	a.beginning.Lock()
	a.joined = true
	a.refresh(ctx)
	for _, pod := range a.Pods() {
		a.updatePod(pod)
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
		applied = applied || a.applyOnce()
		if left := a.leaveNode(ctx); !applied || !left {
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
		if err := a.checkCgroupRoot(); err != nil {
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

// prunePods makes the engine drop the pods that the API does not have any more.
func (a *Agent) prunePods() {
	// Not maps.Keys: pods that arrive while the list is made must not be missing in it.
	a.enforcer.Prune(func(yield func(string) bool) { maps.Keys(a.livePods())(yield) })
}

// livePods are the UIDs, as the node knows them, of the pods that the API has and that have not ended.
func (a *Agent) livePods() map[string]bool {
	live := map[string]bool{}
	for _, pod := range a.Pods() {
		if !convert.Ended(pod.Pod) {
			live[convert.NodeUID(pod.Pod)] = true
		}
	}
	return live
}

// ErrCgroupRoot is returned by Run when the kubelet keeps its pods below another cgroup than the agent works on. The
// agent must restart to use the right one.
var ErrCgroupRoot = errors.New("the kubelet keeps its pods below another cgroup")

// checkCgroupRoot returns ErrCgroupRoot when the kubelet's pods are below another cgroup than the agent's.
func (a *Agent) checkCgroupRoot() error {
	root, said := a.kubelet.CgroupRoot()
	kubelets, used := path.Clean("/"+root), path.Clean("/"+a.o.CgroupRoot)
	if !said || !a.o.guessesRoot || kubelets == used {
		return nil
	}
	return fmt.Errorf("%w: %s, and not %s", ErrCgroupRoot, kubelets, used)
}

// applyOnce makes the cgroup tree equal to the table for the first time; false when it has to be tried again.
func (a *Agent) applyOnce() bool {
	err := a.enforcer.First()
	a.facts.mu.Lock()
	defer a.facts.mu.Unlock()
	a.facts.applied = err
	return err == nil
}

func (a *Agent) updatePod(pod *convert.Pod) {
	if convert.Ended(pod.Pod) {
		a.removePod(pod)
		return
	}
	defer a.requestPodRefresh()
	a.enforcer.Update(desired.FromAPI(pod))
	if a.transports.IsUnasked() {
		a.enforcer.Visit(convert.NodeUID(pod.Pod))
	}
	a.status.Annotations(pod)
}

func (a *Agent) removePod(pod *convert.Pod) {
	a.enforcer.Delete(convert.NodeUID(pod.Pod))
	a.status.ForgetPod(pod.UID)
	a.requestPodRefresh()
}

// updateNode stores a state of the Node, nil once it is gone. It asks for a refresh unless only a heartbeat changed.
func (a *Agent) updateNode(node *corev1.Node) {
	a.facts.mu.Lock()
	same := sameSettings(a.facts.node, node)
	replaced := a.facts.node != nil && (node == nil || a.facts.node.UID != node.UID)
	a.facts.node = node
	a.facts.mu.Unlock()
	if node != nil {
		a.setLeaving(annotation.IsLeaving(node.Annotations))
	}
	if replaced {
		a.status.Forget()
	}
	if !same {
		a.RequestRefresh()
	}
}

// sameSettings reports whether two states of a Node are equal in all that the facts depend on.
func sameSettings(a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		a.Status.NodeInfo.KubeletVersion == b.Status.NodeInfo.KubeletVersion &&
		a.Status.NodeInfo.BootID == b.Status.NodeInfo.BootID &&
		a.Status.DaemonEndpoints == b.Status.DaemonEndpoints && slices.Equal(a.Status.Addresses, b.Status.Addresses) &&
		slices.Equal(exhausted(a, nil), exhausted(b, nil)) && convert.BatchOf(a) == convert.BatchOf(b)
}

// CurrentNode returns the Node as it was last read; nil before.
func (a *Agent) CurrentNode() *corev1.Node {
	a.facts.mu.Lock()
	defer a.facts.mu.Unlock()
	return a.facts.node
}

// RequestRefresh makes follow refresh the facts, and the publisher compare its objects.
func (a *Agent) RequestRefresh() {
	select {
	case a.poke <- struct{}{}:
	default:
	}
	a.requestPublish()
}

// requestPodRefresh is RequestRefresh after a change of pods, which changes the facts only if the kubelet records
// something of pods.
func (a *Agent) requestPodRefresh() {
	a.holders()
	select {
	case a.claims <- struct{}{}:
	default:
	}
	if a.kubelet.RecordsPods() {
		a.kubelet.Want()
		a.RequestRefresh()
		return
	}
	a.requestPublish()
}
