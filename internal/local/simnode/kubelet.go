package simnode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/local/admit"
)

// workers is how many pods of one node are synced at the same time. Most of the time they wait for the API server.
const workers = 4

// kubelet is the part of a kubelet and of a container runtime that a simulated node needs.
type kubelet struct {
	n        *node
	machine  *topo.Machine
	reserved cpuset.Set // kept from pods by a static CPU manager
	gate     *gate
	informer cache.SharedIndexInformer
	queue    workqueue.TypedDelayingInterface[types.UID]

	connecting sync.Mutex // held while an agent receives the running containers; locked before mu

	mu         sync.Mutex    // guards the fields below; never held across a call out of the package
	service    *hook.Service // of the agent that runs; nil while no agent runs
	synced     bool          // service has received the running containers
	pods       map[types.UID]*pod
	ips        map[string]types.UID
	containers map[string]hook.Container // running containers, by id
}

// pod is what the kubelet knows of one pod. The queue hands a UID to one worker at a time, and that worker owns all
// fields that are not immutable.
type pod struct {
	ref        types.NamespacedName // immutable
	uid        types.UID            // immutable
	group      string
	ip         string
	adopted    bool                                            // adoptPod has run
	decided    bool                                            // the gate has decided about the pod
	refusal    *admit.Refusal                                  // why the pod was not admitted; nil if it was
	sandboxed  bool                                            // an agent has accepted the pod's sandbox
	containers map[string]*container                           // by container name
	since      map[corev1.PodConditionType]corev1.PodCondition // as last computed
	sent       *corev1.PodStatus                               // as last written
	reported   string                                          // the cause of the last Event
}

func newKubelet(n *node, m *topo.Machine) (*kubelet, error) {
	k := &kubelet{
		n: n, machine: m, pods: map[types.UID]*pod{}, ips: map[string]types.UID{},
		containers: map[string]hook.Container{}, queue: workqueue.NewTypedDelayingQueue[types.UID](),
	}
	var err error
	if k.reserved, _, err = m.ParseList(n.Machine.Kubelet.CPU.Reserved); err != nil {
		return nil, fmt.Errorf("reserved CPUs: %w", err)
	}
	k.gate = newGate(k)
	// A kubelet's credential allows no pods of other nodes.
	k.informer = informers.NewFilteredPodInformer(n.Client, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.Name).String()
		})
	return k, nil
}

// connect sets the container service of the node's agent; nil when the agent has ended.
func (k *kubelet) connect(s *hook.Service) {
	k.mu.Lock()
	k.service, k.synced = s, false
	all := slices.Collect(maps.Keys(k.pods))
	k.mu.Unlock()
	for _, uid := range all {
		k.queue.Add(uid)
	}
}

// agent returns the container service of the node's agent; nil while no agent can answer. A new agent first receives
// the running containers, as from a runtime to which it connects.
func (k *kubelet) agent() *hook.Service {
	k.connecting.Lock()
	defer k.connecting.Unlock()
	k.mu.Lock()
	service, synced := k.service, k.synced
	k.mu.Unlock()
	if service == nil || !service.Ready() {
		return nil
	}
	if synced {
		return service
	}
	k.mu.Lock()
	pods, containers := map[string]hook.Pod{}, make([]hook.Container, 0, len(k.containers))
	for _, c := range k.containers {
		pods[c.Pod.ID] = c.Pod
		containers = append(containers, c)
	}
	k.mu.Unlock()
	// The updates that the agent answers with need not be written: it writes the tree itself when it starts.
	service.Sync(slices.Collect(maps.Values(pods)), containers)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced = k.service == service
	return service
}

func (k *kubelet) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer k.queue.ShutDown()
	seen, err := k.informer.AddEventHandler(kube.Handler(k.enqueue, k.enqueue))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch pods", "node", k.n.Name)
		return
	}
	wg.Go(func() { k.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), seen.HasSynced) {
		return
	}
	k.removeOrphans()
	for _, item := range k.informer.GetStore().List() {
		obj := item.(*corev1.Pod)
		for _, status := range slices.Concat(obj.Status.InitContainerStatuses, obj.Status.ContainerStatuses) {
			k.adoptContainer(newPod(obj), obj, status)
		}
	}
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		k.gate.run(ctx)
	}()
	for range workers {
		wg.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	select {
	case <-decided:
	case <-time.After(leaveStuck):
		klog.FromContext(ctx).Info("Left the kubelet in the middle of a decision", "node", k.n.Name)
	}
}

// enqueue syncs a pod that has changed. The gate decides about a pod that is new.
func (k *kubelet) enqueue(p *corev1.Pod) {
	k.mu.Lock()
	fresh := k.pods[p.UID] == nil
	if fresh {
		k.pods[p.UID] = newPod(p)
	}
	k.mu.Unlock()
	if fresh {
		k.gate.enqueue(p.UID)
	}
	k.queue.Add(p.UID)
}

func newPod(obj *corev1.Pod) *pod {
	return &pod{
		ref: types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, uid: obj.UID, group: groupOf(obj),
		containers: map[string]*container{}, since: map[corev1.PodConditionType]corev1.PodCondition{},
	}
}

// groupOf returns the pod's group as the kubelet's cgroupfs driver names it.
func groupOf(p *corev1.Pod) string {
	dir := "kubepods/"
	switch p.Status.QOSClass {
	case corev1.PodQOSBurstable:
		dir += "burstable/"
	case corev1.PodQOSBestEffort:
		dir += "besteffort/"
	}
	return dir + "pod" + string(p.UID)
}

func (k *kubelet) work(ctx context.Context) {
	for {
		uid, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		wait, err := k.sync(ctx, uid)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.FromContext(ctx).V(1).Info("Will be tried again", "node", k.n.Name, "pod", uid, "err", err)
			k.queue.AddAfter(uid, errorPause)
		case wait > 0:
			k.queue.AddAfter(uid, wait)
		}
		k.queue.Done(uid)
	}
}

// errorPause is the time after which a pod is synced again when a request to the API server has failed.
const errorPause = 500 * time.Millisecond

// sync reconciles one pod and returns after which time to sync it again; 0 means that only an event can change
// anything.
func (k *kubelet) sync(ctx context.Context, uid types.UID) (time.Duration, error) {
	p := k.pod(uid)
	if p == nil {
		return 0, nil
	}
	obj := k.object(p)
	if obj == nil {
		k.tearDown(p)
		k.forget(p)
		return 0, nil
	}
	if !p.adopted {
		k.adoptPod(p, obj)
	}
	switch {
	case obj.DeletionTimestamp != nil:
		return 0, k.finish(ctx, p, obj)
	case podutil.IsPodTerminal(obj):
		k.tearDown(p)
		return 0, nil
	}
	if !p.decided {
		if p.refusal, p.decided = k.gate.verdict(p.uid); !p.decided {
			return 0, nil // the gate queues it again
		}
	}
	if p.refusal != nil {
		k.tearDown(p)
		return 0, k.report(ctx, p, obj)
	}
	wait := k.advance(ctx, p, obj)
	runs := slices.ContainsFunc(slices.Collect(maps.Values(p.containers)), (*container).isRunning)
	if wait == 0 && runs && k.agent() == nil {
		wait = lastRefusal // until a new agent has received the running containers
	}
	return wait, k.report(ctx, p, obj)
}

func (k *kubelet) pod(uid types.UID) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[uid]
}

// object returns the pod as the API has it; nil when it is gone or was replaced by another one of its name.
func (k *kubelet) object(p *pod) *corev1.Pod {
	obj, ok, err := k.informer.GetStore().GetByKey(p.ref.String())
	if err != nil || !ok {
		return nil
	}
	if found := obj.(*corev1.Pod); found.UID == p.uid {
		return found
	}
	return nil
}

func (k *kubelet) objectOf(uid types.UID) *corev1.Pod {
	if p := k.pod(uid); p != nil {
		return k.object(p)
	}
	return nil
}

// finish ends the containers of a pod that is being deleted, and deletes its object.
func (k *kubelet) finish(ctx context.Context, p *pod, obj *corev1.Pod) error {
	k.tearDown(p)
	if len(obj.Finalizers) > 0 && !podutil.IsPodTerminal(obj) {
		// A controller that counts pods waits for the final status of this one.
		if err := k.report(ctx, p, obj); err != nil {
			return err
		}
	}
	zero := int64(0)
	err := k.n.Client.CoreV1().Pods(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.uid},
	})
	return ignoreGone(err)
}

func (k *kubelet) forget(p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, p.uid)
}

// releaseAddress makes the address of a pod whose containers have ended available to other pods. The pod's status keeps
// it.
func (k *kubelet) releaseAddress(p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ips[p.ip] == p.uid {
		delete(k.ips, p.ip)
	}
}

// assignAddress assigns an address of the node's range to a pod: the address that it had, if that is free.
func (k *kubelet) assignAddress(p *pod, had string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	prefix := fmt.Sprintf("10.%d.%d.", 64+k.n.index>>8, k.n.index&255)
	if strings.HasPrefix(had, prefix) && k.ips[had] == "" {
		p.ip, k.ips[had] = had, p.uid
		return
	}
	for i := 2; i < 255; i++ {
		if ip := fmt.Sprint(prefix, i); k.ips[ip] == "" {
			p.ip, k.ips[ip] = ip, p.uid
			return
		}
	}
}
